package oncemq.clients;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Push consumers, by name.
 *
 * <p>Every delivery is a line of JSON in the consumer's file, written before its handler does anything else, so that it is
 * known even when this program is killed. What the handler does then is told by the command: behave is ok, later, null,
 * throw, hang (never return) or reply; only=NUMBER restricts that to one message, fails=N to its first N deliveries.
 */
final class Listeners {
    private final Map<String, Listener> listeners = new ConcurrentHashMap<>();
    private final Settings settings;
    private final Senders senders;

    Listeners(Settings settings, Senders senders) {
        this.settings = settings;
        this.senders = senders;
    }

    Object start(Command command) throws Exception {
        Listener listener = new Listener(command);
        listener.consumer.start();
        listeners.put(command.text("name"), listener);
        return listener.consumer.buildMQClientId();
    }

    Object stop(Command command) throws Exception {
        listeners.remove(command.text("name")).close();
        return "stopped";
    }

    void close(String prefix) throws Exception {
        for (String name : listeners.keySet()) {
            if (name.startsWith(prefix)) {
                listeners.remove(name).close();
            }
        }
    }

    /** The queues of a topic that the consumer has been given. */
    Object assigned(Command command) {
        List<String> places = new ArrayList<>();
        for (MessageQueue queue : listeners.get(command.text("name")).consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(command.text("topic"))) {
                places.add(Numbered.place(queue));
            }
        }
        Collections.sort(places);
        return places;
    }

    /** How queues are shared: share is averagely, circle, room (with rooms), nearby or hash. */
    private static AllocateMessageQueueStrategy share(Command command) {
        switch (command.text("share", "averagely")) {
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(Set.of(command.text("rooms").split(",")));
                return room;
            case "nearby":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "hash":
                return new AllocateMessageQueueConsistentHash();
            default:
                return new AllocateMessageQueueAveragely();
        }
    }

    /** Brokers are called room@name, clients address@room-name. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[1].split("-")[0];
        }
    }

    private final class Listener {
        private final DefaultMQPushConsumer consumer;
        private final Command command;
        private final BufferedWriter list;

        private Listener(Command command) throws Exception {
            this.command = command;
            list = Files.newBufferedWriter(Path.of(command.text("file")), StandardCharsets.UTF_8);
            consumer = new DefaultMQPushConsumer(command.text("group"), null, share(command), command.yes("trace"), null);
            settings.apply(consumer, command.text("instance", command.text("name")));
            if (command.has("ip")) {
                consumer.setClientIP(command.text("ip"));
            }
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + command.text("from", "FIRST_OFFSET")));
            if (command.has("timestamp")) {
                consumer.setConsumeTimestamp(command.text("timestamp"));
            }
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            consumer.setMaxReconsumeTimes(command.number("retries", -1));
            consumer.setSuspendCurrentQueueTimeMillis(100);
            // The release that is newer has this type in another package; its name is not needed.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(),
                command.text("model", "CLUSTERING")));
            for (String topic : command.text("topic").split(",")) {
                if (command.has("sql")) {
                    consumer.subscribe(topic, MessageSelector.bySql(command.text("sql")));
                } else {
                    consumer.subscribe(topic, command.text("tags", "*"));
                }
            }
            if (command.yes("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) this::orderly);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) this::concurrently);
            }
        }

        private void close() throws IOException {
            consumer.shutdown();
            list.close();
        }

        private ConsumeConcurrentlyStatus concurrently(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            String outcome = outcome(messages);
            if (outcome.equals("null")) {
                return null;
            }
            return outcome.equals("later") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        private ConsumeOrderlyStatus orderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
            String outcome = outcome(messages);
            if (outcome.equals("null")) {
                return null;
            }
            return outcome.equals("later") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        }

        /** Write the deliveries down, then behave as told. */
        private String outcome(List<MessageExt> messages) {
            String outcome = "ok";
            for (MessageExt message : messages) {
                write(message);
                if (misbehaves(message)) {
                    outcome = command.text("behave");
                }
            }
            try {
                Thread.sleep(command.number("pause", 0));
                switch (outcome) {
                    case "throw":
                        throw new IllegalStateException("told to throw");
                    case "hang":
                        Thread.sleep(Long.MAX_VALUE);
                        break;
                    case "reply":
                        reply(messages);
                        break;
                    default:
                        break;
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return outcome;
        }

        private boolean misbehaves(MessageExt message) {
            return command.has("behave")
                && (!command.has("only") || command.text("only").equals(message.getUserProperty("number")))
                && message.getReconsumeTimes() < command.number("fails", Integer.MAX_VALUE);
        }

        private void reply(List<MessageExt> messages) {
            try {
                for (MessageExt message : messages) {
                    String answer = "answer to " + message.getUserProperty("number");
                    senders.producer(command).send(MessageUtil.createReplyMessage(message,
                        answer.getBytes(StandardCharsets.UTF_8)));
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        private synchronized void write(MessageExt message) {
            try {
                list.write(Json.write(Numbered.describe(message)) + "\n");
                list.flush();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
