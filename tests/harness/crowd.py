"""Clients of a broker, in raw frames: messages, groups with offsets, members that stay connected.

    with Crowd(broker) as crowd:
        crowd.topic("Orders", queues=4)
        crowd.send("Orders", 10)
        crowd.commit("billing", "Orders", 3)
        member = crowd.member("billing", ["Orders"])
"""

from . import remoting as r
from . import tap


class Crowd:
    def __init__(self, broker):
        self.broker = broker
        self.client = r.Client(broker, timeout=20)
        self.members = []

    def ask(self, code, ext=None, body=b"", serialize="json"):
        answer = self.client.request(code, ext, body, serialize=serialize)
        tap.check(answer.code == r.SUCCESS, "request %d: %d %s" % (code, answer.code, answer.remark))
        return answer

    def topic(self, topic, queues=4, perm=6):
        self.ask(r.UPDATE_AND_CREATE_TOPIC, {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
                                             "perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"})

    def group(self, group, **more):
        self.ask(200, {}, r.dumps({
            "groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1,
            "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True, **more}))

    def send(self, topic, count=1, queue=0, properties=None):
        for i in range(count):
            self.ask(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"message %d" % i, properties, queue_id=queue))

    def commit(self, group, topic, offset, queue=0):
        self.ask(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})

    def member(self, group, topics, client_id=None, expression="*", info=None):
        """A consumer with a connection of its own. With `info` it can be asked what it runs: serve() answers."""
        one = Member(self.broker, group, topics, client_id or "member-%d@test" % len(self.members), expression)
        self.members.append(one)
        return one

    def close(self):
        for each in self.members:
            each.client.close()
        self.client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def subscription(topic, expression="*"):
    return {"topic": topic, "subString": expression, "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG",
            "classFilterMode": False}


class Member:
    def __init__(self, broker, group, topics, client_id, expression):
        self.client, self.client_id = r.Client(broker, timeout=20), client_id
        self.subscriptions = [subscription(each, expression) for each in topics]
        body = {"clientID": client_id, "producerDataSet": [],
                "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                                     "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                                     "subscriptionDataSet": self.subscriptions}]}
        answer = self.client.request(r.HEART_BEAT, {}, r.dumps(body))
        tap.check(answer.code == r.SUCCESS, answer.remark)

    def serve_running_info(self, timeout=60):
        """Answers one GET_CONSUMER_RUNNING_INFO that the broker relays."""
        asked = self.client.wait_pushed(307, timeout)
        self.client.respond(asked, body=r.dumps({"subscriptionSet": self.subscriptions, "properties": {}, "mqTable": {}, "statusTable": {}}))
