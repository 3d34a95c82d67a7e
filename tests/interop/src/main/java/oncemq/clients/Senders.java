package oncemq.clients;

import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers, by name, and the ways to send with them. */
final class Senders {
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Settings settings;

    Senders(Settings settings) {
        this.settings = settings;
    }

    /** The producer with that name, started when it is first asked for. */
    DefaultMQProducer producer(Command command) throws Exception {
        String name = command.text("producer", "producer");
        synchronized (producers) {
            DefaultMQProducer producer = producers.get(name);
            if (producer == null) {
                producer = new DefaultMQProducer("group_of_" + name, null, command.yes("trace"), null);
                settings.apply(producer, name);
                producer.setSendMsgTimeout(command.number("limit", 15000));
                producer.setRetryTimesWhenSendFailed(command.number("retries", 2));
                producer.setRetryTimesWhenSendAsyncFailed(command.number("retries", 2));
                producer.setMaxMessageSize(command.number("max", producer.getMaxMessageSize()));
                producer.start();
                producers.put(name, producer);
            }
            return producer;
        }
    }

    void close(String prefix) {
        for (String name : producers.keySet()) {
            if (name.startsWith(prefix)) {
                producers.remove(name).shutdown();
            }
        }
    }

    /** How each of the messages fared: a map with "id" and its place, or with "error". */
    Object send(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        List<Message> messages = new ArrayList<>();
        int first = command.number("first", 0);
        for (int number = first; number < first + command.number("count", 1); number++) {
            messages.add(Numbered.message(command, number));
        }
        switch (command.text("mode", "sync")) {
            case "sync":
                return sync(producer, command, messages);
            case "async":
                return async(producer, command, messages);
            case "oneway":
                return oneway(producer, messages);
            case "batch":
                return Collections.singletonList(result(producer.send(messages)));
            case "orders":
                return orders(producer, messages, command.number("orders", 1));
            default:
                throw new IllegalArgumentException("mode " + command.text("mode"));
        }
    }

    /** One by one. With patience=SECONDS a send that fails is repeated, under the same id, until it succeeds. */
    private List<Object> sync(DefaultMQProducer producer, Command command, List<Message> messages) throws Exception {
        List<Object> results = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(command.number("patience", 0));
        for (Message message : messages) {
            while (true) {
                Map<String, Object> result = attempt(producer, command, message);
                if (!result.containsKey("error") || System.nanoTime() > deadline) {
                    result.put("number", Integer.parseInt(message.getUserProperty("number")));
                    results.add(result);
                    break;
                }
                TimeUnit.MILLISECONDS.sleep(50);
            }
            TimeUnit.MILLISECONDS.sleep(command.number("pause", 0));
        }
        return results;
    }

    private static Map<String, Object> attempt(DefaultMQProducer producer, Command command, Message message)
        throws InterruptedException {
        try {
            return result(command.has("queue") ? producer.send(message, queue(command)) : producer.send(message));
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            return Json.map("error", e.toString());
        }
    }

    /** All at once; each callback is one result, with the time it took to come. */
    private static List<Object> async(DefaultMQProducer producer, Command command, List<Message> messages)
        throws Exception {
        List<Object> results = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(messages.size());
        for (Message message : messages) {
            long start = System.nanoTime();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    note(result(sent));
                }

                @Override
                public void onException(Throwable e) {
                    note(Json.map("error", e.toString()));
                }

                private void note(Map<String, Object> result) {
                    result.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
                    results.add(result);
                    missing.countDown();
                }
            };
            if (command.has("queue")) {
                producer.send(message, queue(command), callback);
            } else {
                producer.send(message, callback);
            }
        }
        if (!missing.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " callbacks are missing");
        }
        return new ArrayList<>(results);
    }

    private static List<Object> oneway(DefaultMQProducer producer, List<Message> messages) throws Exception {
        for (Message message : messages) {
            producer.sendOneway(message);
        }
        return Collections.emptyList();
    }

    /** Message n is step n / orders of order n mod orders; the order's hash picks the queue, as users do it. */
    private static List<Object> orders(DefaultMQProducer producer, List<Message> messages, int orders)
        throws Exception {
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Message message = messages.get(i);
            String order = "order-" + i % orders;
            message.putUserProperty("order", order);
            message.putUserProperty("step", Integer.toString(i / orders + 1));
            results.add(result(producer.send(message, (queues, same, arg) ->
                queues.get(Math.floorMod(arg.hashCode(), queues.size())), order)));
        }
        return results;
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    /** Ask and wait for the answer of whoever consumes the topic. */
    Object request(Command command) throws Exception {
        Message answer = producer(command).request(Numbered.message(command, command.number("first", 0)),
            command.number("wait", 5000));
        return Json.map("body", new String(answer.getBody(), StandardCharsets.UTF_8),
            "properties", answer.getProperties());
    }

    /** Takes a message back by its handle; from 5.3 on. */
    Object recall(Command command) throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer(command), command.text("topic"), command.text("handle"));
        } catch (InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    private static Object handle(SendResult sent) {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(sent);
        } catch (ReflectiveOperationException e) {
            return null; // the clients 4.9 know nothing of it
        }
    }

    private static Map<String, Object> result(SendResult sent) {
        if (sent.getSendStatus() != SendStatus.SEND_OK) {
            return Json.map("error", sent.getSendStatus().toString());
        }
        return Json.map("handle", handle(sent), "id", sent.getMsgId(), "offset_id", sent.getOffsetMsgId(),
            "broker", sent.getMessageQueue().getBrokerName(), "queue", sent.getMessageQueue().getQueueId(),
            "offset", sent.getQueueOffset());
    }
}
