package main

import (
	"context"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func withAdmin(c *command, act func(admin.Admin) (interface{}, error)) (interface{}, error) {
	made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{c.Names})))
	if err != nil {
		return nil, err
	}
	defer made.Close()
	return act(made)
}

func createTopic(c *command) (interface{}, error) {
	return withAdmin(c, func(a admin.Admin) (interface{}, error) {
		return nil, a.CreateTopic(context.Background(), admin.WithTopicCreate(c.Topic),
			admin.WithBrokerAddrCreate(c.Broker), admin.WithPerm(c.Perm),
			admin.WithReadQueueNums(c.Queues), admin.WithWriteQueueNums(c.Queues))
	})
}

func deleteTopic(c *command) (interface{}, error) {
	return withAdmin(c, func(a admin.Admin) (interface{}, error) {
		return nil, a.DeleteTopic(context.Background(), admin.WithTopicDelete(c.Topic),
			admin.WithBrokerAddrDelete(c.Broker))
	})
}

func topics(c *command) (interface{}, error) {
	return withAdmin(c, func(a admin.Admin) (interface{}, error) {
		list, err := a.FetchAllTopicList(context.Background())
		if err != nil {
			return nil, err
		}
		return list.TopicList, nil
	})
}
