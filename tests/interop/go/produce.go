package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const floodWorkers = 4

// message is what a test asks to be sent.
type message struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Delay      int               `json:"delay"`
	Shard      string            `json:"shard"`
}

type sent struct {
	Status   int    `json:"status"`
	ID       string `json:"id"`
	OffsetID string `json:"offset_id"`
	Broker   string `json:"broker"`
	Queue    int    `json:"queue"`
	Offset   int64  `json:"offset"`
}

func (m *message) build() *primitive.Message {
	built := primitive.NewMessage(m.Topic, m.Body)
	if m.Tag != "" {
		built.WithTag(m.Tag)
	}
	if len(m.Keys) > 0 {
		built.WithKeys(m.Keys)
	}
	if m.Delay > 0 {
		built.WithDelayTimeLevel(m.Delay)
	}
	if m.Shard != "" {
		built.WithShardingKey(m.Shard)
	}
	for name, value := range m.Properties {
		built.WithProperty(name, value)
	}
	return built
}

func startProducer(c *command) (interface{}, error) {
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{c.Names}),
		producer.WithGroupName(c.Group),
		producer.WithInstanceName(c.Name),
	}
	if c.Retries != nil {
		options = append(options, producer.WithRetry(*c.Retries))
	}
	if c.Trace {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			Access: primitive.Local, Resolver: primitive.NewPassthroughResolver([]string{c.Names})}))
	}
	if c.Selector == "hash" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	players.add(c.Name, made)
	return nil, nil
}

func told(result *primitive.SendResult) sent {
	return sent{int(result.Status), result.MsgID, result.OffsetMsgID, result.MessageQueue.BrokerName,
		result.MessageQueue.QueueId, result.QueueOffset}
}

func send(c *command) (interface{}, error) {
	from, err := find[rocketmq.Producer](c.Name)
	if err != nil {
		return nil, err
	}
	built := []*primitive.Message{}
	for i := range c.Messages {
		built = append(built, c.Messages[i].build())
	}
	switch c.Mode {
	case "sync":
		return each(built, func(m *primitive.Message) (sent, error) { return sendSync(from, m) })
	case "async":
		return sendAsync(from, built)
	case "oneway":
		return each(built, func(m *primitive.Message) (sent, error) {
			return sent{}, from.SendOneWay(context.Background(), m)
		})
	case "batch":
		one, err := sendSync(from, built...)
		return []sent{one}, err
	}
	return nil, fmt.Errorf("no such mode: %q", c.Mode)
}

func each(messages []*primitive.Message, one func(*primitive.Message) (sent, error)) ([]sent, error) {
	results := []sent{}
	for _, m := range messages {
		result, err := one(m)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

func sendSync(from rocketmq.Producer, messages ...*primitive.Message) (sent, error) {
	result, err := from.SendSync(context.Background(), messages...)
	if err != nil {
		return sent{}, err
	}
	return told(result), nil
}

// sendAsync starts all sends before it waits for the first.
func sendAsync(from rocketmq.Producer, messages []*primitive.Message) ([]sent, error) {
	results := make([]sent, len(messages))
	failures := make(chan error, 2*len(messages)) // the client calls back twice for a failure
	var open sync.WaitGroup
	for i, m := range messages {
		i := i
		open.Add(1)
		var once sync.Once
		err := from.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				failures <- err
			} else {
				results[i] = told(result)
			}
			once.Do(open.Done)
		}, m)
		if err != nil {
			return nil, err
		}
	}
	open.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
		return results, nil
	}
}

// flood sends numbered messages, each again until it is acknowledged, and says which place each got. It takes its time,
// at least 1 ms a message and worker, so that something can happen in its midst on a fast machine too.
func flood(c *command) (interface{}, error) {
	from, err := find[rocketmq.Producer](c.Name)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Duration(c.Seconds) * time.Second)
	numbers := make(chan int)
	failures := make(chan error, floodWorkers)
	var open sync.WaitGroup
	for worker := 0; worker < floodWorkers; worker++ {
		open.Add(1)
		go func() {
			defer open.Done()
			for number := range numbers {
				if err := insist(from, c, number, deadline); err != nil {
					failures <- err
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	for number := c.First; number < c.First+c.Count && len(failures) == 0; number++ {
		select {
		case numbers <- number:
		case <-time.After(time.Until(deadline)):
		}
	}
	close(numbers)
	open.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
		return nil, nil
	}
}

func insist(from rocketmq.Producer, c *command, number int, deadline time.Time) error {
	for {
		m := message{Topic: c.Topic, Body: []byte(strconv.Itoa(number))}
		result, err := sendSync(from, m.build())
		if err == nil {
			say(map[string]interface{}{"event": "acked", "name": c.Name, "number": number, "sent": result})
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("message %d is not acknowledged: %w", number, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func request(c *command) (interface{}, error) {
	from, err := find[rocketmq.Producer](c.Name)
	if err != nil {
		return nil, err
	}
	reply, err := from.Request(context.Background(), time.Duration(c.Seconds)*time.Second, c.Messages[0].build())
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{"body": string(reply.Body), "properties": reply.GetProperties()}, nil
}
