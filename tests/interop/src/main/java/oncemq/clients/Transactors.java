package oncemq.clients;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional producers, by name. What each decides is told when it is made. */
final class Transactors {
    private final Map<String, Transactor> all = new ConcurrentHashMap<>();
    private final Settings settings;

    Transactors(Settings settings) {
        this.settings = settings;
    }

    /**
     * Decides by words in turn, the message's number says which: "first" for what it says by itself, "later" for what it
     * says when it is asked (commit, rollback, unknown; "second" is unknown at the first question and commit at the next).
     */
    private static final class Transactor implements TransactionListener {
        final TransactionMQProducer producer;
        final String[] first;
        final String[] later;
        final List<Object> asked = Collections.synchronizedList(new ArrayList<>());

        Transactor(Command command) {
            producer = new TransactionMQProducer(command.text("group"));
            first = command.text("decides", "unknown").split(",");
            later = command.text("later", "unknown").split(",");
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return state(first[number(message) % first.length], 1);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int times = Integer.parseInt(message.getProperty("TRANSACTION_CHECK_TIMES"));
            asked.add(Json.map("number", number(message), "times", times, "topic", message.getTopic(),
                "id", message.getTransactionId(), "at", System.currentTimeMillis()));
            return state(later[number(message) % later.length], times);
        }

        private static int number(Message message) {
            return Integer.parseInt(message.getUserProperty("number"));
        }

        private static LocalTransactionState state(String word, int times) {
            if (word.equals("commit") || word.equals("second") && times > 1) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return word.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    Object start(Command command) throws Exception {
        Transactor made = new Transactor(command);
        settings.apply(made.producer, command.text("producer"));
        made.producer.setSendMsgTimeout(15000);
        made.producer.setTransactionListener(made);
        made.producer.start();
        all.put(command.text("producer"), made);
        return "started";
    }

    /** How each of the messages fared. */
    Object send(Command command) throws Exception {
        Transactor by = all.get(command.text("producer"));
        List<Object> results = new ArrayList<>();
        int first = command.number("first", 0);
        for (int number = first; number < first + command.number("count", 1); number++) {
            TransactionSendResult result =
                by.producer.sendMessageInTransaction(Numbered.message(command, number), null);
            results.add(Json.map("number", number, "id", result.getMsgId(), "offset_id", result.getOffsetMsgId(),
                "transaction", result.getTransactionId(), "status", result.getSendStatus().name(),
                "state", result.getLocalTransactionState().name()));
        }
        return results;
    }

    /** What it was asked, in order. */
    Object asked(Command command) {
        List<Object> asked = all.get(command.text("producer")).asked;
        synchronized (asked) {
            return new ArrayList<>(asked);
        }
    }

    void close(String prefix) {
        for (String name : all.keySet()) {
            if (name.startsWith(prefix)) {
                all.remove(name).producer.shutdown();
            }
        }
    }
}
