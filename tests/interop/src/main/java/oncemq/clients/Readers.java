package oncemq.clients;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Whoever asks for messages: pull consumers by group, lite-pull consumers by name, and queries by key or id. */
@SuppressWarnings("deprecation")
final class Readers {
    private final Map<String, DefaultMQPullConsumer> pullers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new ConcurrentHashMap<>();
    private final Settings settings;
    private final Senders senders;

    Readers(Settings settings, Senders senders) {
        this.settings = settings;
        this.senders = senders;
    }

    private DefaultMQPullConsumer puller(Command command) throws Exception {
        String group = command.text("group");
        synchronized (pullers) {
            DefaultMQPullConsumer consumer = pullers.get(group);
            if (consumer == null) {
                consumer = new DefaultMQPullConsumer(group);
                settings.apply(consumer, "pull_" + group);
                consumer.start();
                pullers.put(group, consumer);
            }
            return consumer;
        }
    }

    void close(String prefix) {
        for (String group : pullers.keySet()) {
            if (group.startsWith(prefix)) {
                pullers.remove(group).shutdown();
            }
        }
        for (String name : lites.keySet()) {
            if (name.startsWith(prefix)) {
                lites.remove(name).shutdown();
            }
        }
    }

    /** Pull once, without waiting for messages. */
    Object pull(Command command) throws Exception {
        PullResult result = puller(command).pull(queue(command), command.text("tags", "*"), command.wide("offset", 0),
            command.number("max", 32));
        return Json.map("status", result.getPullStatus(), "next", result.getNextBeginOffset(),
            "min", result.getMinOffset(), "max", result.getMaxOffset(), "messages",
            result.getMsgFoundList() == null ? Collections.emptyList() : describe(result.getMsgFoundList()));
    }

    Object queues(Command command) throws Exception {
        return places(puller(command).fetchSubscribeMessageQueues(command.text("topic")));
    }

    /** One number of a queue: min, max, the group's committed offset, or the first at or after a time. */
    Object offset(Command command) throws Exception {
        DefaultMQPullConsumer consumer = puller(command);
        switch (command.text("what")) {
            case "min":
                return consumer.minOffset(queue(command));
            case "max":
                return consumer.maxOffset(queue(command));
            case "committed":
                return consumer.fetchConsumeOffset(queue(command), true);
            case "time":
                return consumer.searchOffset(queue(command), command.wide("time", 0));
            default:
                throw new IllegalArgumentException("what " + command.text("what"));
        }
    }

    Object commit(Command command) throws Exception {
        DefaultMQPullConsumer consumer = puller(command);
        consumer.updateConsumeOffset(queue(command), command.wide("offset", 0));
        consumer.getOffsetStore().persist(queue(command));
        return "committed";
    }

    /** A lite-pull consumer that subscribes, or with assign=true takes all queues itself. */
    Object lite(Command command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.text("group"));
        settings.apply(consumer, command.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(command.yes("auto"));
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.setPullBatchSize(16);
        if (!command.yes("assign")) {
            consumer.subscribe(command.text("topic"), command.text("tags", "*"));
        }
        consumer.start();
        lites.put(command.text("name"), consumer);
        if (command.yes("assign")) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(command.text("topic"));
            consumer.assign(queues);
            return places(queues);
        }
        return Collections.emptyList();
    }

    Object litePoll(Command command) throws Exception {
        return describe(lites.get(command.text("name")).poll(command.number("wait", 1000)));
    }

    Object liteSeek(Command command) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(command.text("name"));
        MessageQueue queue = queue(command);
        switch (command.text("offset")) {
            case "begin":
                consumer.seekToBegin(queue);
                break;
            case "end":
                consumer.seekToEnd(queue);
                break;
            default:
                consumer.seek(queue, command.wide("offset", 0));
        }
        return "sought";
    }

    Object liteCommit(Command command) {
        lites.get(command.text("name")).commitSync();
        return "committed";
    }

    Object liteCommitted(Command command) throws Exception {
        return lites.get(command.text("name")).committed(queue(command));
    }

    Object liteStop(Command command) {
        lites.remove(command.text("name")).shutdown();
        return "stopped";
    }

    Object query(Command command) throws Exception {
        DefaultMQProducer producer = senders.producer(command);
        return describe(producer.queryMessage(command.text("topic"), command.text("key"), command.number("max", 64),
            command.wide("begin", 0), command.wide("end", System.currentTimeMillis() + 60000)).getMessageList());
    }

    /** A message by its unique id or by the id of its place in the log. */
    Object view(Command command) throws Exception {
        return Numbered.describe(senders.producer(command).viewMessage(command.text("topic"), command.text("id")));
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    private static List<Object> describe(List<MessageExt> messages) {
        List<Object> described = new ArrayList<>();
        for (MessageExt message : messages) {
            described.add(Numbered.describe(message));
        }
        return described;
    }

    private static List<String> places(Collection<MessageQueue> queues) {
        List<String> places = new ArrayList<>();
        for (MessageQueue queue : queues) {
            places.add(Numbered.place(queue));
        }
        Collections.sort(places);
        return places;
    }
}
