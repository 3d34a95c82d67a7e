package main

import (
	"context"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transactor decides by what a message says itself: the property "first" for what is said by itself, "later" for what is
// said when it is asked (commit, rollback; anything else is unknown).
type transactor struct {
	rocketmq.TransactionProducer
	sync.Mutex
	asked []question
}

type question struct {
	Body  string `json:"body"`
	Times string `json:"times"`
	Topic string `json:"topic"`
}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (t *transactor) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return state(m.GetProperty("first"))
}

func (t *transactor) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	t.Lock()
	defer t.Unlock()
	t.asked = append(t.asked, question{string(m.Body), m.GetProperty("TRANSACTION_CHECK_TIMES"), m.Topic})
	return state(m.GetProperty("later"))
}

func startTransactor(c *command) (interface{}, error) {
	made := &transactor{}
	from, err := rocketmq.NewTransactionProducer(made, producer.WithNameServer(primitive.NamesrvAddr{c.Names}),
		producer.WithGroupName(c.Group), producer.WithInstanceName(c.Name))
	if err != nil {
		return nil, err
	}
	if err := from.Start(); err != nil {
		return nil, err
	}
	made.TransactionProducer = from
	players.add(c.Name, made)
	return nil, nil
}

func transact(c *command) (interface{}, error) {
	from, err := find[*transactor](c.Name)
	if err != nil {
		return nil, err
	}
	results := []sent{}
	for i := range c.Messages {
		result, err := from.SendMessageInTransaction(context.Background(), c.Messages[i].build())
		if err != nil {
			return nil, err
		}
		results = append(results, told(result.SendResult))
	}
	return results, nil
}

func asked(c *command) (interface{}, error) {
	from, err := find[*transactor](c.Name)
	if err != nil {
		return nil, err
	}
	from.Lock()
	defer from.Unlock()
	return append([]question{}, from.asked...), nil
}
