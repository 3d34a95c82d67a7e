package oncemq.clients;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Messages that carry their number and the checksum of their body, so that whoever receives one can check it alone.
 *
 * <p>Arguments of a command that makes messages: topic, tags (taken in turn, joined by commas), keys (how many different
 * ones, "key-0" and up), size and kind of body ("text" can be compressed, "noise" cannot), and delay (level) or, from 5.0
 * on, delay_ms, delay_sec or deliver_in (ms from now, told as a time of day). Every message also has the properties number, n (number mod 10) and greeting, which is not ASCII.
 */
final class Numbered {
    private Numbered() {
    }

    static Message message(Command command, int number) {
        byte[] body = body(number, command.number("size", 0), command.text("kind", "text").equals("noise"));
        Message message = new Message(command.text("topic"), body);
        if (command.has("tags")) {
            String[] tags = command.text("tags").split(",");
            message.setTags(tags[number % tags.length]);
        }
        if (command.has("keys")) {
            message.setKeys("key-" + number % command.number("keys", 1));
        }
        if (command.has("delay")) {
            message.setDelayTimeLevel(command.number("delay", 0));
        }
        later(message, "setDelayTimeMs", command.number("delay_ms", 0));
        later(message, "setDelayTimeSec", command.number("delay_sec", 0));
        if (command.has("deliver_in")) {
            later(message, "setDeliverTimeMs", System.currentTimeMillis() + command.number("deliver_in", 0));
        }
        message.putUserProperty("number", Integer.toString(number));
        message.putUserProperty("n", Integer.toString(number % 10));
        message.putUserProperty("greeting", "größe 大小 " + number);
        message.putUserProperty("crc", Long.toString(crc(body)));
        return message;
    }

    /** The clients 4.9 do not have these setters. */
    private static void later(Message message, String setter, long value) {
        if (value == 0) {
            return;
        }
        try {
            Message.class.getMethod(setter, long.class).invoke(message, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException(setter, e);
        }
    }

    /** A received message as a map; "intact" says whether the body is the one that was sent. */
    static Map<String, Object> describe(MessageExt message) {
        String number = message.getUserProperty("number");
        return Json.map("number", number == null ? -1 : Integer.parseInt(number),
            "id", message.getMsgId(), "topic", message.getTopic(), "broker", message.getBrokerName(),
            "queue", message.getQueueId(), "offset", message.getQueueOffset(), "tags", message.getTags(),
            "keys", message.getKeys(), "reconsumed", message.getReconsumeTimes(),
            "born", message.getBornTimestamp(), "stored", message.getStoreTimestamp(),
            "at", System.currentTimeMillis(), "size", message.getBody().length,
            "intact", Long.toString(crc(message.getBody())).equals(message.getUserProperty("crc"))
                && ("größe 大小 " + number).equals(message.getUserProperty("greeting")),
            "properties", message.getProperties());
    }

    static String place(MessageQueue queue) {
        return queue.getBrokerName() + "/" + queue.getQueueId();
    }

    private static byte[] body(int number, int size, boolean noise) {
        if (noise) {
            byte[] body = new byte[size];
            new Random(number).nextBytes(body);
            return body;
        }
        StringBuilder text = new StringBuilder("message " + number);
        while (text.length() < size) {
            text.append(" · at ").append(text.length());
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }
}
