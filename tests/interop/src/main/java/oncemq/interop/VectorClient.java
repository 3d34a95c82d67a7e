package oncemq.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a push consumer that use the requests of which we keep byte vectors.
 *
 * <p>Usage: VectorClient NAMESRV. Everything is sent to queue 0 of one topic before the consumer starts, so that its
 * first pull finds several messages at once. The consumer refuses one message once, which sends it back.
 */
public final class VectorClient {
    private static final String TOPIC = "VectorTopic";

    private VectorClient() {
    }

    public static void main(String[] args) throws Exception {
        int sent = produce(args[0]);
        consume(args[0], sent);
        System.out.println("done");
    }

    private static int produce(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("vector_producer");
        producer.setNamesrvAddr(names);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("producer-1");
        producer.start();

        MessageQueue queue = producer.send(text("plain", "TagA", "key-1 key-2")).getMessageQueue();
        queue = new MessageQueue(TOPIC, queue.getBrokerName(), 0);
        producer.send(text("with keys, tags and properties", "TagA", "order-1"), queue);
        producer.send(text("消息内容 \uD83D\uDE80", "标签", "钥匙"), queue);
        producer.send(new Message(TOPIC, "TagB", "big", "0123456789".repeat(500).getBytes(StandardCharsets.UTF_8)),
            queue);
        producer.send(batch(), queue);
        producer.sendOneway(text("oneway", "TagC", "oneway-1"), queue);
        // A synchronous send on the same connection after it: the oneway message has been stored.
        producer.send(text("last", "TagC", "last-1"), queue);
        producer.shutdown();
        return 7;
    }

    private static Message text(String body, String tag, String keys) {
        Message message = new Message(TOPIC, tag, keys, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("colour", "green");
        message.putUserProperty("Größe", "12 \"inch\" \\ 标");
        message.setFlag(7);
        return message;
    }

    private static List<Message> batch() {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(TOPIC, "TagB", "batch-" + i, ("batch " + i).getBytes(StandardCharsets.UTF_8)));
        }
        return batch;
    }

    private static void consume(String names, int atLeast) throws Exception {
        CountDownLatch seen = new CountDownLatch(atLeast);
        AtomicBoolean refused = new AtomicBoolean();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("vector_consumer");
        consumer.setNamesrvAddr(names);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("consumer-1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(TOPIC, "TagA || TagB || TagC || 标签");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (messages.get(0).getBody().length == 4 && refused.compareAndSet(false, true)) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            seen.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!seen.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(seen.getCount() + " messages did not arrive");
        }
        // One timer period, so that the regular (oneway) offset update is among the frames; it comes after 10 s.
        TimeUnit.SECONDS.sleep(12);
        consumer.shutdown();
    }
}
