package oncemq.clients;

import org.apache.rocketmq.client.ClientConfig;

/** What all clients of one program share: where the name servers are, and timers short enough for a test. */
final class Settings {
    private final String names;

    Settings(String names) {
        this.names = names;
    }

    /** Each client gets an instance of its own, and with it a client id and connections of its own. */
    void apply(ClientConfig client, String name) {
        client.setNamesrvAddr(names);
        client.setInstanceName(name);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        client.setPullTimeDelayMillsWhenException(500);
        client.setMqClientApiTimeout(15000);
    }
}
