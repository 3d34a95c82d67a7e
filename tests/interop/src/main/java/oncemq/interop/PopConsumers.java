package oncemq.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Unmodified push consumers that let the broker divide the queues, and so pop where it says so.
 *
 * <p>Usage: PopConsumers NAMESRV TOPIC GROUP FILE MEMBERS. Each message is a flushed line "member body tries
 * way" in FILE. A body that begins with "fail" is refused at its first delivery, one that begins with "slow" keeps its
 * thread for an hour then. Standard output gets "started". The end of standard input ends it.
 */
public final class PopConsumers {
    private static final int INVISIBLE_MS = 5000;
    private final BufferedWriter list;

    private PopConsumers(String file) throws IOException {
        list = Files.newBufferedWriter(Path.of(file), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        PopConsumers all = new PopConsumers(args[3]);
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[4]); i++) {
            members.add(all.member(args, "m" + i));
        }
        for (DefaultMQPushConsumer member : members) {
            member.start();
        }
        System.out.println("started");
        while (System.in.read() >= 0) {
            continue;
        }
        System.out.println("done");
        Runtime.getRuntime().halt(0); // a slow listener would be waited for
    }

    private DefaultMQPushConsumer member(String[] args, String name) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(name);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(INVISIBLE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> consume(name, messages)
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        return consumer;
    }

    private boolean consume(String name, List<MessageExt> messages) {
        boolean good = true;
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            write(name, body, message);
            boolean first = message.getReconsumeTimes() == 0;
            if (first && body.startsWith("slow")) {
                sleep();
            }
            good &= !first || !body.startsWith("fail");
        }
        return good;
    }

    private synchronized void write(String name, String body, MessageExt message) {
        try {
            String way = message.getProperty("POP_CK") == null ? "pull" : "pop";
            list.write(name + " " + body + " " + message.getReconsumeTimes() + " " + way + "\n");
            list.flush();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(3600 * 1000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
