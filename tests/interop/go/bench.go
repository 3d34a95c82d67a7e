package main

import (
	"context"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const benchSize, benchFlight = 1024, 1024

type speed struct {
	PerSecond float64 `json:"per_second"`
	PerCore   float64 `json:"per_core"`
	Failed    int     `json:"failed"`
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// sendMany keeps benchFlight messages under way; gives how many failed.
func sendMany(from rocketmq.Producer, topic string, count int) (int, error) {
	body := make([]byte, benchSize)
	answers := make(chan error, benchFlight)
	failed, open := 0, 0
	wait := func() {
		if err := <-answers; err != nil {
			failed++
		}
		open--
	}
	for i := 0; i < count; i++ {
		if open == benchFlight {
			wait()
		}
		open++
		err := from.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			answers <- err
		}, primitive.NewMessage(topic, body))
		if err != nil {
			return failed, err
		}
	}
	for open > 0 {
		wait()
	}
	return failed, nil
}

// bench measures asynchronous messages of 1 KiB: a tenth to become warm, then all of them.
func bench(c *command) (interface{}, error) {
	from, err := find[rocketmq.Producer](c.Name)
	if err != nil {
		return nil, err
	}
	if _, err := sendMany(from, c.Topic, c.Count/10); err != nil {
		return nil, err
	}
	wall, cpu := time.Now(), cpuSeconds()
	failed, err := sendMany(from, c.Topic, c.Count)
	if err != nil {
		return nil, err
	}
	count := float64(c.Count)
	return speed{count / time.Since(wall).Seconds(), count / (cpuSeconds() - cpu), failed}, nil
}
