package oncemq.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageType;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * What the classes of the Java client answer. Reads questions, one a line with tabs between their words, and writes an
 * answer to each; client_parts.c understands the same questions and answers for our client. An exception is "X".
 *
 * <pre>
 * compress  type level body           the compressed body; bodies are hexadecimal
 * expand    system-flag body          the plain body
 * sort      names                     in Java's order, lists with commas
 * share     strategy argument me clients topic queues    indexes of my queues; a queue is broker:id
 * pick      first-turn faults? slow-brokers unreachable-brokers queues last-brokers    one index for each last broker
 * key       key n                     the index of the queue
 * fault     took-ms failed?           how long the broker is left out
 * trace     kind and all fields       the record, and its keys in order
 * untrace   record                    the fields it has
 * id        unique-id                 address and process id in it
 * </pre>
 */
public final class ClientOracle {
    private static final HexFormat HEX = HexFormat.of();

    private ClientOracle() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t", -1));
            } catch (Exception e) {
                answer = "X";
                System.err.println(line.substring(0, Math.min(200, line.length())) + ": " + e);
            }
            out.print(answer + "\n");
        }
        out.flush();
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "compress":
                return HEX.formatHex(CompressorFactory.getCompressor(CompressionType.of(words[1]))
                    .compress(HEX.parseHex(words[3]), Integer.parseInt(words[2])));
            case "expand":
                return HEX.formatHex(CompressorFactory.getCompressor(
                    MessageSysFlag.getCompressionType(Integer.decode(words[1]))).decompress(HEX.parseHex(words[2])));
            case "sort":
                return list(words[1]).stream().sorted().collect(Collectors.joining(","));
            case "share":
                return share(words);
            case "pick":
                return pick(words);
            case "key":
                List<MessageQueue> queues = queues("T", "b:0" + ",b:0".repeat(Integer.parseInt(words[2]) - 1));
                for (int i = 0; i < queues.size(); i++) {
                    queues.get(i).setQueueId(i);
                }
                return "" + new SelectMessageQueueByHash().select(queues, null, words[1]).getQueueId();
            case "fault":
                return fault(Long.parseLong(words[1]), words[2].equals("true"));
            case "trace":
                return trace(words);
            case "untrace":
                return untrace(new String(HEX.parseHex(words[1]), StandardCharsets.UTF_8));
            case "id":
                return MessageClientIDSetter.getIPStrFromID(words[1]) + " " + MessageClientIDSetter.getPidFromID(words[1]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? Collections.emptyList() : Arrays.asList(text.split(",", -1));
    }

    private static List<MessageQueue> queues(String topic, String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String each : list(text)) {
            int colon = each.lastIndexOf(':');
            queues.add(new MessageQueue(topic, each.substring(0, colon), Integer.parseInt(each.substring(colon + 1))));
        }
        return queues;
    }

    // ---- sharing and picking queues ----

    private static String share(String[] words) {
        List<MessageQueue> queues = queues(words[5], words[6]);
        List<MessageQueue> mine = strategy(words[1], words[2], words[5])
            .allocate("group", words[3], queues, list(words[4]));
        return mine.stream().map(each -> "" + queues.indexOf(each)).collect(Collectors.joining(","));
    }

    private static AllocateMessageQueueStrategy strategy(String name, String argument, String topic) {
        switch (name) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(topic, argument));
                return config;
            case "room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(list(argument)));
                return room;
            case "hash":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(argument));
            default: // nearby-STRATEGY
                return new AllocateMachineRoomNearby(strategy(name.substring("nearby-".length()), argument, topic),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@", -1)[0];
                        }

                        @Override
                        public String consumerDeployIn(String client) {
                            return client.split("@", -1)[0];
                        }
                    });
        }
    }

    private static String pick(String[] words) throws ReflectiveOperationException {
        Set<String> slow = new HashSet<>(list(words[3]));
        Set<String> unreachable = new HashSet<>(list(words[4]));
        MQFaultStrategy strategy = faultStrategy(words[2].equals("true"), (method, args) ->
            method.equals("isAvailable") ? !slow.contains(args[0])
                : method.equals("isReachable") ? !unreachable.contains(args[0]) : null);

        TopicPublishInfo info = new TopicPublishInfo();
        info.setMessageQueueList(queues("T", words[5]));
        int[] turn = {Integer.parseInt(words[1])};
        info.setSendWhichQueue(new ThreadLocalIndex() {
            @Override
            public int incrementAndGet() {
                return turn[0]++;
            }
        });
        List<String> picked = new ArrayList<>();
        for (String last : words[6].split(",", -1)) {
            MessageQueue queue = strategy.selectOneMessageQueue(info, last.isEmpty() ? null : last, false);
            picked.add("" + info.getMessageQueueList().indexOf(queue));
        }
        return String.join(",", picked);
    }

    private static String fault(long tookMs, boolean failed) throws ReflectiveOperationException {
        Object[] noted = {null};
        faultStrategy(true, (method, args) -> {
            noted[0] = method.equals("updateFaultItem") ? args[2] : noted[0];
            return null;
        }).updateFaultItem("b", tookMs, failed, true);
        return "" + noted[0];
    }

    private interface Answers {
        Object answer(String method, Object[] args);
    }

    /** Java's own strategy over a table of ours. Its constructor for this purpose throws, so the field is replaced. */
    private static MQFaultStrategy faultStrategy(boolean enabled, Answers answers) throws ReflectiveOperationException {
        ClientConfig settings = new ClientConfig();
        settings.setSendLatencyEnable(enabled);
        MQFaultStrategy strategy = new MQFaultStrategy(settings, null, null);
        Field table = MQFaultStrategy.class.getDeclaredField("latencyFaultTolerance");
        table.setAccessible(true);
        table.set(strategy, Proxy.newProxyInstance(ClientOracle.class.getClassLoader(),
            new Class<?>[] {LatencyFaultTolerance.class}, (proxy, method, args) -> answers.answer(method.getName(), args)));
        return strategy;
    }

    // ---- trace: kind time region group topic id tags keys store-host offset-id request-id transaction body-size cost
    //      retry type state result success from-check; an empty text is null ----

    private static String text(String word) {
        return word.isEmpty() ? null : word;
    }

    private static String trace(String[] words) {
        TraceContext context = new TraceContext();
        TraceBean bean = new TraceBean();
        context.setTraceType(TraceType.valueOf(words[1]));
        context.setTimeStamp(Long.parseLong(words[2]));
        context.setRegionId(text(words[3]));
        context.setGroupName(text(words[4]));
        bean.setTopic(text(words[5]));
        bean.setMsgId(text(words[6]));
        bean.setTags(text(words[7]));
        bean.setKeys(text(words[8]));
        bean.setStoreHost(text(words[9]));
        bean.setOffsetMsgId(text(words[10]));
        context.setRequestId(text(words[11]));
        bean.setTransactionId(text(words[12]));
        bean.setBodyLength(Integer.parseInt(words[13]));
        context.setCostTime(Integer.parseInt(words[14]));
        bean.setRetryTimes(Integer.parseInt(words[15]));
        bean.setMsgType(MessageType.values()[Integer.parseInt(words[16])]);
        bean.setTransactionState(LocalTransactionState.values()[Integer.parseInt(words[17])]);
        context.setContextCode(Integer.parseInt(words[18]));
        context.setSuccess(words[19].equals("true"));
        bean.setFromTransactionCheck(words[20].equals("true"));
        context.setAccessChannel(AccessChannel.LOCAL);
        context.setTraceBeans(List.of(bean));
        TraceTransferBean encoded = TraceDataEncoder.encoderFromContextBean(context);
        Set<String> keys = new TreeSet<>();
        encoded.getTransKey().stream().filter(each -> each != null && !each.isEmpty()).forEach(keys::add);
        return HEX.formatHex(encoded.getTransData().getBytes(StandardCharsets.UTF_8)) + " " + String.join(" ", keys);
    }

    private static String untrace(String data) {
        List<String> all = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(data)) {
            TraceBean bean = context.getTraceBeans().get(0);
            all.add(String.join("|", "" + context.getTraceType(), "" + context.getTimeStamp(), "" + context.getRegionId(),
                "" + context.getGroupName(), "" + bean.getTopic(), "" + bean.getMsgId(), "" + bean.getTags(),
                "" + bean.getKeys(), "" + bean.getStoreHost(), "" + bean.getOffsetMsgId(), "" + context.getRequestId(),
                "" + bean.getTransactionId(), "" + bean.getBodyLength(), "" + context.getCostTime(), "" + bean.getRetryTimes(),
                "" + bean.getMsgType(), "" + bean.getTransactionState(), "" + context.getContextCode(),
                "" + context.isSuccess(), "" + bean.isFromTransactionCheck()));
        }
        return String.join(";", all);
    }
}
