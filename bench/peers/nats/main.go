// A load for NATS JetStream: acknowledged asynchronous publishes with so many under way on each connection, consumers that
// take a backlog or wait for what is published. Prints one line of JSON with the fields that bench/peers/nats.py takes.
//
//	load -url nats://… -mode first|send|consume|e2e -c 8 -i 32 -size 1024 -ms 2000 -warm 500 -rate 0 -count 0
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream   = "bench"
	subjects = 8
	stamp    = 8 // bytes in front of a body: when it was due
)

var (
	url   = flag.String("url", "", "the server")
	mode  = flag.String("mode", "send", "first, send, consume or e2e")
	conns = flag.Int("c", 8, "connections")
	depth = flag.Int("i", 32, "messages under way on each")
	size  = flag.Int("size", 1024, "bytes of a body")
	runMs = flag.Int("ms", 2000, "measured time")
	warm  = flag.Int("warm", 500, "time before that")
	rate  = flag.Float64("rate", 0, "messages a second in all; 0: as many as there is room for")
	count = flag.Int64("count", 0, "consume: the backlog; else the most that is sent")
)

// Times of messages that were due while it counted, of one connection.
type tally struct {
	times    []int64
	messages int64
	failures int64
}

type run struct {
	began, from, until time.Time
	sent               atomic.Int64 // all, warming included
	stored             atomic.Int64
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func connect() (*nats.Conn, jetstream.JetStream) {
	nc, err := nats.Connect(*url)
	must(err)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(*depth+1))
	must(err)
	return nc, js
}

// The stream is kept in files; asking for it again changes nothing.
func prepare(js jetstream.JetStream) jetstream.Stream {
	s, err := js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: stream, Subjects: []string{stream + ".>"}, Storage: jetstream.FileStorage})
	must(err)
	return s
}

func subject(n int64) string {
	return fmt.Sprintf("%s.%d", stream, n%subjects)
}

// ---- publishing ----

type pending struct {
	future jetstream.PubAckFuture
	due    time.Time
}

// Acknowledgements come in the order of publishing, so one waits for them in that order.
func settle(r *run, from <-chan pending, t *tally) {
	for p := range from {
		select {
		case <-p.future.Ok():
			r.stored.Add(1)
			if !p.due.Before(r.from) {
				t.messages++
				t.times = append(t.times, time.Since(p.due).Nanoseconds())
			}
		case <-p.future.Err():
			t.failures++
		}
	}
}

func publish(r *run, index int, t *tally) {
	nc, js := connect()
	defer nc.Close()
	under := make(chan pending, *depth-1)
	var settled sync.WaitGroup
	settled.Add(1)
	go func() { defer settled.Done(); settle(r, under, t) }()
	for n := int64(index); ; n += int64(*conns) {
		due := time.Now()
		if *rate > 0 {
			due = r.began.Add(time.Duration(float64(n) * 1e9 / *rate))
			time.Sleep(time.Until(due))
		}
		if !due.Before(r.until) || (*count > 0 && r.sent.Add(1) > *count) {
			break
		}
		body := make([]byte, max(*size, stamp))
		binary.BigEndian.PutUint64(body, uint64(due.UnixNano()))
		future, err := js.PublishAsync(subject(n), body)
		if err != nil {
			t.failures++
			continue
		}
		under <- pending{future, due}
	}
	close(under)
	settled.Wait()
}

func publishAll(r *run) []*tally {
	var all []*tally
	var done sync.WaitGroup
	for i := range *conns {
		t := &tally{}
		all = append(all, t)
		done.Add(1)
		go func() { defer done.Done(); publish(r, i, t) }()
	}
	done.Wait()
	return all
}

// ---- consuming ----

// The connections share one consumer, which asks for no acknowledgements.
func consumer(s jetstream.Stream, policy jetstream.DeliverPolicy) string {
	c, err := s.CreateOrUpdateConsumer(context.Background(), jetstream.ConsumerConfig{
		Durable: fmt.Sprintf("c%d", time.Now().UnixNano()), AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: policy})
	must(err)
	return c.CachedInfo().Name
}

func consumeAll(name string, took func(body []byte)) (stop func()) {
	var stops []func()
	for range *conns {
		nc, js := connect()
		c, err := js.Consumer(context.Background(), stream, name)
		must(err)
		taking, err := c.Consume(func(m jetstream.Msg) { took(m.Data()) }, jetstream.PullMaxMessages(1000))
		must(err)
		stops = append(stops, func() { taking.Stop(); nc.Close() })
	}
	return func() {
		for _, each := range stops {
			each()
		}
	}
}

func backlog(s jetstream.Stream) {
	r := &run{began: time.Now(), from: time.Now(), until: time.Now().Add(time.Hour)}
	publishAll(r)
	tell(fill{r.stored.Load()})
	var line string
	fmt.Scanln(&line) // whoever measures us says when to begin
	var taken atomic.Int64
	over := make(chan bool, 1)
	began, cpu := time.Now(), cpuSeconds()
	stop := consumeAll(consumer(s, jetstream.DeliverAllPolicy), func([]byte) {
		if taken.Add(1) == *count {
			over <- true
		}
	})
	select {
	case <-over:
	case <-time.After(2 * time.Minute):
	}
	seconds := time.Since(began).Seconds()
	stop()
	tell(told{PerSecond: float64(taken.Load()) / seconds, Messages: taken.Load(), Stored: taken.Load(), Seconds: seconds,
		Generator: (cpuSeconds() - cpu) / seconds})
}

func endToEnd(s jetstream.Stream, r *run) {
	t := &tally{}
	var room sync.Mutex
	stop := consumeAll(consumer(s, jetstream.DeliverNewPolicy), func(body []byte) {
		due := time.Unix(0, int64(binary.BigEndian.Uint64(body)))
		room.Lock()
		defer room.Unlock()
		if !due.Before(r.from) {
			t.messages++
			t.times = append(t.times, time.Since(due).Nanoseconds())
		}
	})
	restart(r)
	cpu := cpuSeconds()
	sent := int64(0)
	for _, each := range publishAll(r) {
		sent += each.messages
		t.failures += each.failures
	}
	for wait := time.Now().Add(10 * time.Second); time.Now().Before(wait); time.Sleep(time.Millisecond) {
		room.Lock()
		all := t.messages >= sent
		room.Unlock()
		if all {
			break
		}
	}
	stop()
	report(r, []*tally{t}, cpu)
}

// ---- telling ----

type fill struct {
	Filled int64 `json:"filled"`
}

type told struct {
	PerSecond float64 `json:"per_second"`
	Messages  int64   `json:"messages"`
	Stored    int64   `json:"stored"`
	Failures  int64   `json:"failures"`
	Seconds   float64 `json:"seconds"`
	Generator float64 `json:"generator"`
	Min       float64 `json:"min_us,omitempty"`
	P50       float64 `json:"p50_us,omitempty"`
	P90       float64 `json:"p90_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
	P999      float64 `json:"p999_us,omitempty"`
	Max       float64 `json:"max_us,omitempty"`
}

func tell(what any) {
	line, err := json.Marshal(what)
	must(err)
	fmt.Println(string(line))
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func report(r *run, all []*tally, cpu float64) {
	seconds := time.Since(r.from).Seconds()
	if *count == 0 {
		seconds = min(seconds, r.until.Sub(r.from).Seconds())
	}
	out := told{Stored: r.stored.Load(), Seconds: seconds}
	var times []int64
	for _, t := range all {
		out.Messages += t.messages
		out.Failures += t.failures
		times = append(times, t.times...)
	}
	out.PerSecond = float64(out.Messages) / seconds
	out.Generator = (cpuSeconds() - cpu) / time.Since(r.began).Seconds()
	slices.Sort(times)
	at := func(part float64) float64 {
		return float64(times[min(len(times)-1, int(part*float64(len(times))))]) / 1e3
	}
	if len(times) > 0 {
		out.Min, out.P50, out.P90, out.P99, out.P999, out.Max = at(0), at(0.5), at(0.9), at(0.99), at(0.999), at(1)
	}
	tell(out)
}

func restart(r *run) {
	r.began = time.Now()
	r.from = r.began.Add(time.Duration(*warm) * time.Millisecond)
	r.until = r.from.Add(time.Duration(*runMs) * time.Millisecond)
}

// Asks until the server is there and has acknowledged a message.
func first() {
	for {
		nc, err := nats.Connect(*url)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		js, err := jetstream.New(nc)
		must(err)
		prepare(js)
		_, err = js.Publish(context.Background(), subject(0), []byte("first"))
		must(err)
		tell(fill{1})
		return
	}
}

func main() {
	flag.Parse()
	if *mode == "first" {
		first()
		return
	}
	nc, js := connect()
	defer nc.Close()
	s := prepare(js)
	r := &run{}
	restart(r)
	switch *mode {
	case "send":
		cpu := cpuSeconds()
		report(r, publishAll(r), cpu)
	case "consume":
		backlog(s)
	case "e2e":
		endToEnd(s, r)
	}
}
