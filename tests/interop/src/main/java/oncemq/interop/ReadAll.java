package oncemq.interop;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Everything that topics hold, as the official client sees it.
 *
 * <p>Usage: ReadAll NAMESRV GROUP FILE TOPIC... For each queue FILE gets a line "queue TAB topic TAB queue TAB min TAB max
 * TAB committed", then a line for each message: "message", topic, queue, offset, position, store time, id, length and
 * CRC-32 of the body, tag, keys, and a user property that is not ASCII, separated by tabs.
 */
public final class ReadAll {
    private final DefaultMQPullConsumer consumer;
    private final BufferedWriter out;

    private ReadAll(String names, String group, String file) throws Exception {
        out = Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8);
        consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.start();
    }

    public static void main(String[] args) throws Exception {
        ReadAll all = new ReadAll(args[0], args[1], args[2]);
        for (String topic : Arrays.copyOfRange(args, 3, args.length)) {
            for (MessageQueue queue : all.consumer.fetchSubscribeMessageQueues(topic)) {
                all.read(queue);
            }
        }
        all.out.close();
        all.consumer.shutdown();
        System.out.println("done");
        System.exit(0);
    }

    private void read(MessageQueue queue) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        line("queue", queue.getTopic(), queue.getQueueId(), min, max, consumer.fetchConsumeOffset(queue, true));
        for (long offset = min; offset < max;) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getMsgFoundList() == null || result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result.getPullStatus());
            }
            for (MessageExt message : result.getMsgFoundList()) {
                show(message);
            }
            offset = result.getNextBeginOffset();
        }
    }

    private void show(MessageExt message) throws Exception {
        CRC32 crc = new CRC32();
        crc.update(message.getBody());
        line("message", message.getTopic(), message.getQueueId(), message.getQueueOffset(),
            message.getCommitLogOffset(), message.getStoreTimestamp(), message.getMsgId(), message.getBody().length,
            crc.getValue(), message.getTags(), message.getKeys(), message.getUserProperty("größe"));
    }

    private void line(Object... parts) throws Exception {
        for (int i = 0; i < parts.length; i++) {
            out.write((i == 0 ? "" : "\t") + parts[i]);
        }
        out.write("\n");
    }
}
