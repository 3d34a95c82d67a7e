package oncemq.interop;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages whose content follows from their number, so that a receiver can check each without being told.
 *
 * <p>The number stands in a user property and in the keys. Sizes go from a few bytes to a few hundred; every 250th body
 * is 9000 bytes, which the client compresses.
 */
final class Bodies {
    private static final String NUMBER = "number";

    private Bodies() {
    }

    static Message message(String topic, int number) {
        Message message = new Message(topic, "Tag" + number % 3, "order-" + number, body(number));
        message.putUserProperty(NUMBER, Integer.toString(number));
        return message;
    }

    static int number(MessageExt message) {
        return Integer.parseInt(message.getUserProperty(NUMBER));
    }

    /** What is wrong with a received message, or null. */
    static String fault(MessageExt message) {
        int number = number(message);
        if (!Arrays.equals(message.getBody(), body(number))) {
            return "body of " + message.getBody().length + " bytes is not that of message " + number;
        }
        if (!("order-" + number).equals(message.getKeys())) {
            return "keys are " + message.getKeys();
        }
        if (!("Tag" + number % 3).equals(message.getTags())) {
            return "tag is " + message.getTags();
        }
        return null;
    }

    private static byte[] body(int number) {
        int size = number % 250 == 249 ? 9000 : 20 + number * 31 % 400;
        StringBuilder text = new StringBuilder(size + 40);
        while (text.length() < size) {
            text.append("message ").append(number).append(" at ").append(text.length()).append(" · ");
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }
}
