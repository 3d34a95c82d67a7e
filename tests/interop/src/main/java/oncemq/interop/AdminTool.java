package oncemq.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;
import org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand;

/**
 * The admin tool beside a producer and consumers that it can look at, all in one process, because each start of Java
 * takes seconds.
 *
 * <p>Usage: AdminTool NAMESRV. Each line of standard input is a command with its arguments, separated by tabs; what it
 * prints ends with a line "==end". The end of standard input ends it.
 */
public final class AdminTool {
    private static final AtomicInteger CONSUMED = new AtomicInteger();
    private static DefaultMQProducer producer;

    private AdminTool() {
    }

    public static void main(String[] args) throws Exception {
        System.setErr(System.out); // where commands tell of their failures
        hurryShutdowns(Thread.currentThread());
        producer = new DefaultMQProducer("admin_producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        System.out.println("==end");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                run(args[0], line.split("\t"));
            } catch (Throwable failed) {
                System.out.println("failed " + failed);
            }
            System.out.println("\n==end"); // some commands leave their last line open
            System.out.flush();
        }
        System.exit(0);
    }

    /**
     * Each command ends with the shutdown of its client, which joins a thread that sleeps for up to three seconds. That
     * thread is woken; those of clients that go on shrug it off.
     */
    private static void hurryShutdowns(Thread commands) {
        Thread hurry = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(50);
                } catch (InterruptedException never) {
                    return;
                }
                boolean joins = Arrays.stream(commands.getStackTrace())
                    .anyMatch(at -> at.getClassName().endsWith("common.ServiceThread") && at.getMethodName().equals("shutdown"));
                if (joins) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(each -> each.getName().contains("NettyEventExecutor")).forEach(Thread::interrupt);
                }
            }
        });
        hurry.setDaemon(true);
        hurry.start();
    }

    private static void run(String names, String[] words) throws Exception {
        switch (words[0]) {
            case "send":
                send(words[1], Integer.parseInt(words[2]));
                break;
            case "consume":
                consume(names, words[1], words[2], words[3].equals("orderly"));
                break;
            case "answer":
                answer(names, words[1], words[2]);
                break;
            case "request":
                Message reply = producer.request(new Message(words[1], words[2].getBytes(StandardCharsets.UTF_8)), 8000);
                System.out.println("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
                break;
            case "resetOffsetByTimeOld": // mqadmin 5.5.0 has it, and does not know its name
                unlisted(names, new ResetOffsetByTimeOldCommand(), Arrays.copyOfRange(words, 1, words.length));
                break;
            case "trace":
                trace(names, words[1], words[2], words[3]);
                break;
            case "consumed":
                System.out.println("consumed " + CONSUMED.get());
                break;
            default:
                MQAdminStartup.main(Arrays.copyOf(words, words.length));
        }
    }

    private static void send(String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "TagA", "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            SendResult sent = producer.send(message, new MessageQueue(topic, queueBroker(topic), 0));
            System.out.println("sent " + sent.getMsgId() + " " + sent.getOffsetMsgId() + " " + sent.getQueueOffset());
        }
    }

    private static String queueBroker(String topic) throws Exception {
        return producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
    }

    private static DefaultMQPushConsumer consumer(String names, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void consume(String names, String group, String topic, boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer = consumer(names, group, topic);
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                CONSUMED.addAndGet(messages.size());
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                CONSUMED.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
    }

    /** What MQAdminStartup does with a command that it knows. */
    private static void unlisted(String names, SubCommand command, String[] args) throws Exception {
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, names);
        Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
        CommandLine line = ServerUtil.parseCmdLine("mqadmin", args, options, new DefaultParser());
        command.execute(line, options, null);
    }

    /** A producer and a consumer with their trace switch on: one message from the one to the other. */
    private static void trace(String names, String group, String topic, String key) throws Exception {
        DefaultMQProducer traced = new DefaultMQProducer("traced_producer");
        traced.setEnableTrace(true);
        traced.setNamesrvAddr(names);
        traced.setInstanceName("traced");
        traced.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setEnableTrace(true);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("traced");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            CONSUMED.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        SendResult sent = traced.send(new Message(topic, "TagT", key, "traced".getBytes(StandardCharsets.UTF_8)));
        System.out.println("sent " + sent.getMsgId());
    }

    /** A consumer that replies to each message with its body and a word more. */
    private static void answer(String names, String group, String topic) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer("admin_replier");
        replier.setNamesrvAddr(names);
        replier.setInstanceName("replier");
        replier.start();
        DefaultMQPushConsumer consumer = consumer(names, group, topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = (new String(message.getBody(), StandardCharsets.UTF_8) + " heard")
                        .getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body), 3000);
                } catch (Exception failed) {
                    System.out.println("failed " + failed);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
