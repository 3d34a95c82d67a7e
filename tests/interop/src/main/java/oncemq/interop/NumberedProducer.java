package oncemq.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * An unmodified producer that sends numbered messages and keeps a list of those that were acknowledged.
 *
 * <p>Usage: NumberedProducer NAMESRV TOPIC FIRST COUNT ACK_FILE SECONDS. A send that fails is repeated with the same
 * message object, so under the same id, until it succeeds or the time is over. Each acknowledgement is a flushed line
 * "number id offset-id queue offset" in ACK_FILE. Standard output gets "acked N" after each 100 and, at the end, "done
 * N failures M".
 */
public final class NumberedProducer {
    private static final int THREADS = 4;

    private final DefaultMQProducer producer = new DefaultMQProducer("numbered_producer");
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger failures = new AtomicInteger();
    private final String topic;
    private final int end;
    private final long deadline;
    private final BufferedWriter list;
    private int acked;

    private NumberedProducer(String[] args) throws IOException {
        producer.setNamesrvAddr(args[0]);
        topic = args[1];
        next.set(Integer.parseInt(args[2]));
        end = next.get() + Integer.parseInt(args[3]);
        list = Files.newBufferedWriter(Path.of(args[4]), StandardCharsets.UTF_8);
        deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[5]));
    }

    public static void main(String[] args) throws Exception {
        System.exit(new NumberedProducer(args).run());
    }

    private int run() throws Exception {
        producer.start();
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        for (int i = 0; i < THREADS; i++) {
            pool.execute(this::sendMany);
        }
        pool.shutdown();
        boolean finished = pool.awaitTermination(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
        producer.shutdown();
        list.close();
        System.out.println("done " + acked + " failures " + failures.get());
        return finished ? 0 : 1;
    }

    private void sendMany() {
        try {
            for (int number = next.getAndIncrement(); number < end; number = next.getAndIncrement()) {
                acknowledged(number, send(Bodies.message(topic, number)));
            }
        } catch (IOException | InterruptedException e) {
            e.printStackTrace();
        }
    }

    private SendResult send(Message message) throws InterruptedException {
        while (true) {
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return result;
                }
                System.err.println("status " + result.getSendStatus());
            } catch (Exception e) {
                System.err.println("send failed: " + e);
            }
            failures.incrementAndGet();
            if (System.nanoTime() > deadline) {
                throw new InterruptedException("out of time");
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }

    private synchronized void acknowledged(int number, SendResult result) throws IOException {
        list.write(number + " " + result.getMsgId() + " " + result.getOffsetMsgId() + " "
            + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset() + "\n");
        list.flush();
        acked++;
        if (acked % 100 == 0) {
            System.out.println("acked " + acked);
        }
    }
}
