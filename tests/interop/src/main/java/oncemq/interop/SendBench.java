package oncemq.interop;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * How fast an unmodified producer sends, and what that costs it.
 *
 * <p>Usage: SendBench NAMESRV TOPIC COUNT ROUNDS. Each round sends COUNT messages of 1 KiB asynchronously, 1024 of them
 * under way, and prints one line of JSON. The first rounds are slow: the JVM is not warm yet.
 */
public final class SendBench {
    private static final int SIZE = 1024;
    private static final int FLIGHT = 1024;

    private final Semaphore room = new Semaphore(FLIGHT);
    private final AtomicLong failed = new AtomicLong();
    private final OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        SendBench bench = new SendBench();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            bench.round(producer, args[1], Integer.parseInt(args[2]));
        }
        producer.shutdown();
        System.exit(0);
    }

    private void round(DefaultMQProducer producer, String topic, int count) throws Exception {
        long wall = System.nanoTime();
        long cpu = system.getProcessCpuTime();
        byte[] body = new byte[SIZE];
        for (int i = 0; i < count; i++) {
            room.acquire();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    room.release();
                }

                @Override
                public void onException(Throwable reason) {
                    failed.incrementAndGet();
                    room.release();
                }
            });
        }
        room.acquire(FLIGHT);
        room.release(FLIGHT);
        System.out.printf("{\"per_second\":%.0f,\"per_core\":%.0f,\"failed\":%d}%n",
            count * 1e9 / (System.nanoTime() - wall), count * 1e9 / (system.getProcessCpuTime() - cpu), failed.get());
    }
}
