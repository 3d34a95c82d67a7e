package oncemq.interop;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigAndMappingSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;

/**
 * Facts that Java's own classes compute, printed as lines "kind TAB input TAB result".
 *
 * <p>register-compressed is a whole REGISTER_BROKER frame whose body was made by RegisterBrokerBody.encode(true): no
 * broker of 5.x sends that form, but the name server reads it.
 */
public final class VectorFacts {
    private VectorFacts() {
    }

    public static void main(String[] args) throws Exception {
        messageId("127.0.0.1", 10911, 0);
        messageId("127.0.0.1", 10911, 4096);
        messageId("10.11.12.13", 65535, 0x123456789ABCDEFL);
        messageId("255.254.253.252", 1, Long.MAX_VALUE);
        messageId("::1", 10911, 4096);
        messageId("fd00::1", 10911, 4096);
        messageId("2001:db8:1:2:3:4:5:6", 20911, 0x7FFFFFFF0L);
        for (String tag : new String[] {"", "a", "TagA", "TagB", "order-created", "*", "标签", "订单_已支付",
            "Größe", "\uD83D\uDE80", "a\uD83D\uDE00b", "polygenelubricants", "x".repeat(127)}) {
            line("tag", tag, Integer.toString(tag.hashCode()));
        }
        line("register-compressed", "-", hex(registerFrame()));
    }

    private static void messageId(String address, int port, long offset) throws UnknownHostException {
        InetAddress ip = InetAddress.getByName(address);
        ByteBuffer host = ByteBuffer.allocate(ip.getAddress().length + 4);
        host.put(ip.getAddress()).putInt(port).flip();
        ByteBuffer work = ByteBuffer.allocate(ip.getAddress().length + 12);
        line("id", address + " " + port + " " + offset, MessageDecoder.createMessageId(work, host, offset));
    }

    private static byte[] registerFrame() throws IOException {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put("TBW102", new TopicConfig("TBW102", 8, 8, 7, 0));
        topics.put("OrderTopic", new TopicConfig("OrderTopic", 16, 12, 6, 0));
        TopicConfig attributed = new TopicConfig("FifoTopic", 4, 4, 6, 0);
        attributed.getAttributes().put("message.type", "FIFO");
        topics.put("FifoTopic", attributed);

        DataVersion version = new DataVersion();
        version.setTimestamp(1700000000000L);
        version.setCounter(new AtomicLong(3));
        version.setStateVersion(0);
        TopicConfigAndMappingSerializeWrapper wrapper = new TopicConfigAndMappingSerializeWrapper();
        wrapper.setTopicConfigTable(topics);
        wrapper.setDataVersion(version);
        RegisterBrokerBody body = new RegisterBrokerBody();
        body.setTopicConfigSerializeWrapper(wrapper);
        body.setFilterServerList(new ArrayList<>());
        byte[] bytes = body.encode(true);

        RegisterBrokerRequestHeader header = new RegisterBrokerRequestHeader();
        header.setBrokerAddr("127.0.0.1:10911");
        header.setBrokerId(0L);
        header.setBrokerName("broker-a");
        header.setClusterName("DefaultCluster");
        header.setHaServerAddr("127.0.0.1:10912");
        header.setEnableActingMaster(false);
        header.setCompressed(true);
        header.setBodyCrc32(UtilAll.crc32(bytes));
        RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.REGISTER_BROKER, header);
        command.setVersion(org.apache.rocketmq.common.MQVersion.CURRENT_VERSION);
        command.setBody(bytes);
        ByteBuffer frame = command.encode();
        byte[] whole = new byte[frame.remaining()];
        frame.get(whole);
        return whole;
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static void line(String kind, String input, String result) {
        byte[] text = (kind + "\t" + input + "\t" + result + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(text, 0, text.length);
        System.out.flush();
    }
}
