package oncemq.interop;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * An unmodified producer and push consumers that choose by SQL92.
 *
 * <p>Usage: SqlConsumer NAMESRV TOPIC GROUP COUNT WANTED EXPRESSION BAD. Sends COUNT messages with the property n, their
 * number, half of them before the consumer starts. Prints "refused MESSAGE", what a consumer with the expression BAD is
 * told at its start, and "received N ...", the numbers that a consumer with EXPRESSION got, when there are WANTED of
 * them and no other message has come for two seconds.
 */
public final class SqlConsumer {
    private SqlConsumer() {
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        int wanted = Integer.parseInt(args[4]);
        DefaultMQProducer producer = new DefaultMQProducer("sql_producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        send(producer, args[1], 0, count / 2);

        Set<Integer> never = new TreeSet<>();
        DefaultMQPushConsumer refused = consumer(args[0], args[2] + "_bad", args[1], args[6], never);
        try {
            refused.start();
            System.out.println("refused nothing");
        } catch (MQClientException e) {
            System.out.println("refused " + e.getMessage().replace('\n', ' '));
        }

        Set<Integer> numbers = new TreeSet<>();
        DefaultMQPushConsumer consumer = consumer(args[0], args[2], args[1], args[5], numbers);
        consumer.start();
        send(producer, args[1], count / 2, count);
        synchronized (numbers) {
            long deadline = System.currentTimeMillis() + 90_000;
            while (numbers.size() < wanted && System.currentTimeMillis() < deadline) {
                numbers.wait(1000);
            }
            numbers.wait(2000);
            StringBuilder line = new StringBuilder("received");
            numbers.forEach(n -> line.append(' ').append(n));
            System.out.println(line);
        }
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int from, int to) throws Exception {
        for (int n = from; n < to; n++) {
            Message message = new Message(topic, Integer.toString(n).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("n", Integer.toString(n));
            producer.send(message);
        }
    }

    private static DefaultMQPushConsumer consumer(String names, String group, String topic, String expression,
        Set<Integer> numbers) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (numbers) {
                messages.forEach(m -> numbers.add(Integer.parseInt(new String(m.getBody(), StandardCharsets.UTF_8))));
                numbers.notifyAll();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }
}
