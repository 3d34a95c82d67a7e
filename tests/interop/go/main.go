// A puppet: the unchanged Go client, led by a test.
//
// Commands come on standard input, one JSON object each: {"id": 1, "do": "send", …}. Every command is answered by one
// line on standard output, {"id": 1, "result": …} or {"id": 1, "error": "…"}. What happens by itself is a line with
// "event": a message that a consumer got, a message of a flood that was acknowledged. Producers, consumers and admins
// have names that the test gives them; each is a client instance of its own, as if in a process of its own.
//
// End of input ends the program in good order. The client's own log goes to standard error.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// command holds the arguments of all commands; each uses what it needs.
type command struct {
	ID   int    `json:"id"`
	Do   string `json:"do"`
	Name string `json:"name"`

	Names    string    `json:"names"` // address of the name server
	Group    string    `json:"group"`
	Topic    string    `json:"topic"`
	Mode     string    `json:"mode"`
	Selector string    `json:"selector"`
	Retries  *int      `json:"retries"`
	Trace    bool      `json:"trace"`
	Messages []message `json:"messages"`
	First    int       `json:"first"`
	Count    int       `json:"count"`
	Seconds  int       `json:"seconds"`

	Expression   string `json:"expression"`
	Kind         string `json:"kind"`
	Broadcast    bool   `json:"broadcast"`
	Orderly      bool   `json:"orderly"`
	From         string `json:"from"`
	Timestamp    string `json:"timestamp"`
	MaxReconsume *int32 `json:"max_reconsume"`
	FailBelow    int32  `json:"fail_below"`
	HangAt       string `json:"hang_at"` // a body that begins so is never finished
	Ledger       string `json:"ledger"`  // a file for the effects, in place of telling the test of each delivery
	WorkMs       int    `json:"work_ms"` // how long a message takes before its effect
	Reply        string `json:"reply"`

	Queue  primitive.MessageQueue `json:"queue"`
	Offset int64                  `json:"offset"`
	Ack    bool                   `json:"ack"`

	Broker string `json:"broker"`
	Perm   int    `json:"perm"`
	Queues int    `json:"queues"`
}

type answer struct {
	ID     int         `json:"id"`
	Result interface{} `json:"result"`
	Error  string      `json:"error,omitempty"`
}

var handlers = map[string]func(*command) (interface{}, error){
	"producer":      startProducer,
	"send":          send,
	"flood":         flood,
	"bench":         bench,
	"request":       request,
	"transactor":    startTransactor,
	"transact":      transact,
	"asked":         asked,
	"consumer":      startConsumer,
	"settle":        settle,
	"pull_consumer": startPullConsumer,
	"pull":          pull,
	"poll":          poll,
	"commit":        commit,
	"committed":     committed,
	"create_topic":  createTopic,
	"delete_topic":  deleteTopic,
	"topics":        topics,
	"stop":          stop,
}

// cast holds everything that was started, by name.
type cast struct {
	sync.Mutex
	members map[string]interface{}
}

var players = cast{members: map[string]interface{}{}}

func (c *cast) add(name string, member interface{}) {
	c.Lock()
	defer c.Unlock()
	c.members[name] = member
}

func (c *cast) take(name string) interface{} {
	c.Lock()
	defer c.Unlock()
	member := c.members[name]
	delete(c.members, name)
	return member
}

func (c *cast) all() []string {
	c.Lock()
	defer c.Unlock()
	names := []string{}
	for name := range c.members {
		names = append(names, name)
	}
	return names
}

func find[T any](name string) (T, error) {
	players.Lock()
	defer players.Unlock()
	member, ok := players.members[name].(T)
	if !ok {
		return member, fmt.Errorf("nothing of this kind is called %q", name)
	}
	return member, nil
}

var output = struct {
	sync.Mutex
	*json.Encoder
}{Encoder: json.NewEncoder(os.Stdout)}

func say(line interface{}) {
	output.Lock()
	defer output.Unlock()
	if err := output.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "cannot answer:", err)
		os.Exit(1)
	}
}

func perform(c *command) {
	handler := handlers[c.Do]
	if handler == nil {
		say(answer{ID: c.ID, Error: "no such command: " + c.Do})
		return
	}
	result, err := handler(c)
	if err != nil {
		say(answer{ID: c.ID, Error: err.Error()})
		return
	}
	say(answer{ID: c.ID, Result: result})
}

func stop(c *command) (interface{}, error) {
	switch member := players.take(c.Name).(type) {
	case interface{ Shutdown() error }:
		return nil, member.Shutdown()
	case interface{ Close() error }:
		return nil, member.Close()
	}
	return nil, fmt.Errorf("nothing is called %q", c.Name)
}

func main() {
	input := json.NewDecoder(os.Stdin)
	for {
		c := &command{}
		if err := input.Decode(c); err == io.EOF {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(2)
		}
		go perform(c) // a flood takes long, and others go on beside it
	}
	for _, name := range players.all() {
		_, _ = stop(&command{Name: name})
	}
}
