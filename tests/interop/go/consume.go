package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const bodyShown = 1024 // longer bodies are told by size and digest only

// received is one delivery, as the test hears of it.
type received struct {
	Event      string            `json:"event,omitempty"`
	Name       string            `json:"name,omitempty"`
	Topic      string            `json:"topic"`
	ID         string            `json:"id"`
	OffsetID   string            `json:"offset_id"`
	Queue      int               `json:"queue"`
	Offset     int64             `json:"offset"`
	Tag        string            `json:"tag"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	Reconsume  int32             `json:"reconsume"`
	Body       string            `json:"body"`
	Size       int               `json:"size"`
	Digest     string            `json:"digest"`
	At         int64             `json:"at"`
}

func describe(m *primitive.MessageExt) received {
	digest := sha256.Sum256(m.Body)
	r := received{
		Topic: m.Topic, ID: m.MsgId, OffsetID: m.OffsetMsgId, Queue: m.Queue.QueueId, Offset: m.QueueOffset,
		Tag: m.GetTags(), Keys: m.GetKeys(), Properties: m.GetProperties(), Reconsume: m.ReconsumeTimes,
		Size: len(m.Body), Digest: hex.EncodeToString(digest[:]), At: time.Now().UnixMilli(),
	}
	if len(m.Body) <= bodyShown {
		r.Body = string(m.Body)
	}
	return r
}

func describeAll(messages []*primitive.MessageExt) []received {
	all := []received{}
	for _, m := range messages {
		all = append(all, describe(m))
	}
	return all
}

func consumerOptions(c *command) ([]consumer.Option, error) {
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{c.Names}),
		consumer.WithGroupName(c.Group),
		consumer.WithInstance(c.Name),
	}
	if c.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if c.Orderly {
		options = append(options, consumer.WithConsumerOrder(true))
	}
	if c.MaxReconsume != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*c.MaxReconsume))
	}
	switch c.From {
	case "", "last":
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	case "first":
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	case "timestamp":
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
			consumer.WithConsumeTimestamp(c.Timestamp))
	default:
		return nil, fmt.Errorf("no such place to begin: %q", c.From)
	}
	return options, nil
}

func selector(c *command) consumer.MessageSelector {
	if c.Kind == "SQL92" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: c.Expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: c.Expression}
}

func startConsumer(c *command) (interface{}, error) {
	options, err := consumerOptions(c)
	if err != nil {
		return nil, err
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		return consume(c, messages)
	}
	if err := made.Subscribe(c.Topic, selector(c), listen); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	players.add(c.Name, made)
	return nil, nil
}

func consume(c *command, messages []*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, m := range messages {
		time.Sleep(time.Duration(c.WorkMs) * time.Millisecond)
		if c.Ledger != "" {
			enter(c, m)
		} else {
			r := describe(m)
			r.Event, r.Name = "message", c.Name
			say(r)
		}
		if c.Reply != "" {
			if err := reply(c.Reply, m); err != nil {
				fmt.Fprintln(os.Stderr, "cannot reply:", err)
			}
		}
		if m.ReconsumeTimes < c.FailBelow {
			if c.Orderly {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		}
		if c.HangAt != "" && strings.HasPrefix(string(m.Body), c.HangAt) {
			select {}
		}
	}
	return consumer.ConsumeSuccess, nil
}

// enter has the effect of a message: one line in a file that all consumers share. It is there before the client hears
// of success, and stays when this process is killed. One write appends the whole line or nothing.
func enter(c *command, m *primitive.MessageExt) {
	line := fmt.Sprintf("%s\t%s\t%s\t%d\t%d\n", c.Name, m.GetKeys(), m.MsgId, m.ReconsumeTimes, time.Now().UnixMilli())
	file, err := os.OpenFile(c.Ledger, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = file.WriteString(line)
		_ = file.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot have an effect:", err)
		os.Exit(1)
	}
}

// settle waits until a push consumer has booked everything that its listener has taken. A delivery is told to the test
// before that, and a consumer that stops in between gets it once more.
func settle(c *command) (interface{}, error) {
	from, err := find[rocketmq.PushConsumer](c.Name)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		open := int64(0)
		for _, difference := range from.GetOffsetDiffMap() {
			open += difference
		}
		if open == 0 {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("not booked: %v", from.GetOffsetDiffMap())
}

func reply(name string, to *primitive.MessageExt) error {
	from, err := find[rocketmq.Producer](name)
	if err != nil {
		return err
	}
	m, err := consumer.CreateReplyMessage(to, nil)
	if err != nil {
		return err
	}
	m.Body = append([]byte("re: "), to.Body...) // v2.1.2 does not put the body into the reply
	_, err = from.SendSync(context.Background(), m)
	return err
}

func startPullConsumer(c *command) (interface{}, error) {
	options, err := consumerOptions(c)
	if err != nil {
		return nil, err
	}
	made, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(c.Topic, selector(c)); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	players.add(c.Name, made)
	return nil, nil
}

// pull asks for messages of one queue from an offset on.
func pull(c *command) (interface{}, error) {
	from, err := find[rocketmq.PullConsumer](c.Name)
	if err != nil {
		return nil, err
	}
	result, err := from.PullFrom(context.Background(), &c.Queue, c.Offset, c.Count)
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{
		"status": int(result.Status), "next": result.NextBeginOffset, "min": result.MinOffset, "max": result.MaxOffset,
		"messages": describeAll(result.GetMessageExts()),
	}, nil
}

// poll takes what the client has fetched of the queues that are its own; nothing within the time is an empty list.
func poll(c *command) (interface{}, error) {
	from, err := find[rocketmq.PullConsumer](c.Name)
	if err != nil {
		return nil, err
	}
	found, err := from.Poll(context.Background(), time.Duration(c.Seconds)*time.Second)
	if consumer.IsNoNewMsgError(err) {
		return []received{}, nil
	}
	if err != nil {
		return nil, err
	}
	messages := describeAll(found.GetMsgList())
	if c.Ack {
		from.ACK(context.Background(), found, consumer.ConsumeSuccess)
	}
	return messages, nil
}

// commit stores an offset of a queue that is this consumer's own at the broker.
func commit(c *command) (interface{}, error) {
	from, err := find[rocketmq.PullConsumer](c.Name)
	if err != nil {
		return nil, err
	}
	if err := from.UpdateOffset(&c.Queue, c.Offset); err != nil {
		return nil, err
	}
	return nil, from.PersistOffset(context.Background(), c.Queue.Topic)
}

func committed(c *command) (interface{}, error) {
	from, err := find[rocketmq.PullConsumer](c.Name)
	if err != nil {
		return nil, err
	}
	return from.CurrentOffset(&c.Queue)
}
