package oncemq.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One long-lived producer that sends to whatever topic it is told, and a fresh consumer that gets the messages back.
 *
 * <p>Usage: RoundTrip NAMESRV. Each line of standard input is a topic; the answer is a line "ok TOPIC" or "failed TOPIC
 * reason". The end of standard input ends it.
 */
public final class RoundTrip {
    private static final int COUNT = 8;

    private RoundTrip() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("round_trip_producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        System.out.println("started");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String topic = in.readLine(); topic != null; topic = in.readLine()) {
            try {
                send(producer, topic);
                receive(args[0], topic);
                System.out.println("ok " + topic);
            } catch (Exception e) {
                System.out.println("failed " + topic + " " + e.toString().replace('\n', ' '));
            }
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic) throws Exception {
        for (int number = 0; number < COUNT; number++) {
            SendStatus status = producer.send(Bodies.message(topic, number)).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException("status " + status);
            }
        }
    }

    private static void receive(String names, String topic) throws Exception {
        CountDownLatch missing = new CountDownLatch(COUNT);
        Set<Integer> seen = ConcurrentHashMap.newKeySet();
        Set<String> faults = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("round_trip_" + topic);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String fault = Bodies.fault(message);
                if (fault != null) {
                    faults.add(fault);
                }
                if (seen.add(Bodies.number(message))) {
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = missing.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!all || !faults.isEmpty()) {
            throw new IllegalStateException(missing.getCount() + " missing, faults " + faults);
        }
    }
}
