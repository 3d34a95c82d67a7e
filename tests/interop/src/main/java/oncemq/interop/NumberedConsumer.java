package oncemq.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * An unmodified push consumer of numbered messages.
 *
 * <p>Usage: NumberedConsumer NAMESRV TOPIC GROUP FILE. Each message is a flushed line "number id broker/queue/offset
 * fault" in FILE, the fault being "-" when the content is right; standard output gets "started", then "received N"
 * (different ids) twice a second. The end of standard input ends it, offsets committed.
 */
public final class NumberedConsumer {
    private final DefaultMQPushConsumer consumer;
    private final BufferedWriter list;
    private final Set<String> ids = new HashSet<>();

    private NumberedConsumer(String[] args) throws Exception {
        list = Files.newBufferedWriter(Path.of(args[3]), StandardCharsets.UTF_8);
        consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The topic does not exist when the consumer starts; look for it more often than every 30 s.
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) this::consume);
    }

    public static void main(String[] args) throws Exception {
        new NumberedConsumer(args).run();
    }

    private void run() throws Exception {
        consumer.start();
        System.out.println("started");
        Thread report = new Thread(this::report);
        report.setDaemon(true);
        report.start();
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        list.close();
        System.out.println("done " + count());
        System.exit(0);
    }

    private ConsumeConcurrentlyStatus consume(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        try {
            for (MessageExt message : messages) {
                received(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        } catch (IOException e) {
            e.printStackTrace();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    private synchronized void received(MessageExt message) throws IOException {
        String fault = Bodies.fault(message);
        list.write(Bodies.number(message) + " " + message.getMsgId() + " " + place(message) + " "
            + (fault == null ? "-" : fault) + "\n");
        list.flush();
        ids.add(message.getMsgId());
    }

    private static String place(MessageExt message) {
        return message.getBrokerName() + "/" + message.getQueueId() + "/" + message.getQueueOffset();
    }

    private synchronized int count() {
        return ids.size();
    }

    private void report() {
        try {
            while (true) {
                System.out.println("received " + count());
                Thread.sleep(500);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
