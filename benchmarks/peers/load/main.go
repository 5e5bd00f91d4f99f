// Load on etcd and on NATS, through their own clients, and on whatever speaks S3.
//
// Reads one command in each line of standard input, such as "put clients=64 seconds=2 bytes=100",
// and answers with one line of JSON. It ends with its input, so that it does not outlive who started it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	patience       = 10 * time.Second
	outagePatience = time.Second // of a call while something fails
)

// A peer does one operation; number counts those of a client.
type peer interface {
	prepare(ctx context.Context, given options) error
	step(ctx context.Context, command string, client, number int, value []byte) error
	leader() (string, error)
	aim() error // at the one that leads, as our client does, for what is measured
	spread()    // over all, for what fails
}

// Ways to connect to a peer at endpoints, by its kind: the files of a load add theirs.
var connects = map[string]func([]string) (peer, error){}

type options map[string]string

func (o options) number(name string) int {
	number, err := strconv.Atoi(o[name])
	if err != nil {
		panic(fmt.Sprintf("the command lacks %s", name))
	}
	return number
}

func main() {
	target, err := connects[os.Args[1]](os.Args[2:])
	if err != nil {
		say(map[string]any{"error": err.Error()})
		os.Exit(1)
	}
	say(map[string]any{"ready": 1})
	server := &server{target: target}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := server.answer(lines.Text())
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		say(answer)
	}
}

func say(answer map[string]any) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

type server struct {
	target peer
	outage *outage
}

func (s *server) answer(line string) (answer map[string]any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%v", problem)
		}
	}()
	words := strings.Fields(line)
	given := options{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		given[name] = value
	}
	switch command := words[0]; command {
	case "prepare":
		return map[string]any{"ready": 1}, s.prepare(given)
	case "leader":
		name, err := s.target.leader()
		return map[string]any{"leader": name}, err
	case "outage-begin":
		s.target.spread()
		s.outage = newOutage(s.target, given["what"], make([]byte, given.number("bytes")))
		return map[string]any{"ready": 1}, s.outage.begun()
	case "outage-end":
		since, _ := strconv.ParseInt(given["since"], 10, 64)
		longest, err := s.outage.longestSince(time.Unix(0, since))
		return map[string]any{"seconds": longest.Seconds()}, err
	default:
		return s.all(command, given)
	}
}

// prepare tries again for as long as a cluster that was just started may need.
func (s *server) prepare(given options) (err error) {
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), outagePatience)
		err = s.target.prepare(ctx, given)
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func step(target peer, within time.Duration, command string, client, number int, value []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return target.step(ctx, command, client, number, value)
}

// all lets clients act, each one step after the other, for some seconds.
func (s *server) all(command string, given options) (map[string]any, error) {
	clients := given.number("clients")
	seconds, err := strconv.ParseFloat(given["seconds"], 64)
	if err != nil {
		return nil, err
	}
	if err := s.target.aim(); err != nil {
		return nil, err
	}
	value := make([]byte, given.number("bytes"))
	times := make([][]time.Duration, clients)
	failures := make([]error, clients)
	begun := time.Now()
	until := begun.Add(time.Duration(seconds * float64(time.Second)))
	var waiting sync.WaitGroup
	for client := range clients {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for called := time.Now(); len(times[client]) == 0 || called.Before(until); called = time.Now() {
				if err := step(s.target, patience, command, client, len(times[client]), value); err != nil {
					failures[client] = err
					return
				}
				times[client] = append(times[client], time.Since(called))
			}
		}()
	}
	waiting.Wait()
	elapsed := time.Since(begun)
	for _, failure := range failures {
		if failure != nil {
			return nil, failure
		}
	}
	var steps []time.Duration
	for _, those := range times {
		steps = append(steps, those...)
	}
	sort.Slice(steps, func(i, j int) bool { return steps[i] < steps[j] })
	return map[string]any{
		"seconds": elapsed.Seconds(),
		"count":   len(steps),
		"p50_ms":  percentile(steps, 0.5),
		"p99_ms":  percentile(steps, 0.99),
	}, nil
}

func percentile(sorted []time.Duration, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(float64(len(sorted))*share))]) / 1e6
}

// An outage is a client that acts without a pause, until it is asked for its longest wait since an instant.
// What fails meanwhile, or is not answered within a second, is tried again, as users of a cluster do.
type outage struct {
	lock    sync.Mutex
	changed *sync.Cond
	ends    []time.Time
	lastAt  time.Time // when the last success was begun
	over    bool
}

func newOutage(target peer, command string, value []byte) *outage {
	made := &outage{}
	made.changed = sync.NewCond(&made.lock)
	go func() {
		for number := 0; ; number++ {
			begun := time.Now()
			if step(target, outagePatience, command, 0, number, value) != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			made.lock.Lock()
			made.ends, made.lastAt = append(made.ends, time.Now()), begun
			over := made.over
			made.changed.Broadcast()
			made.lock.Unlock()
			if over {
				return
			}
		}
	}()
	return made
}

func (o *outage) begun() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	for len(o.ends) < 3 {
		o.changed.Wait()
	}
	return nil
}

func (o *outage) longestSince(since time.Time) (time.Duration, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for !o.lastAt.After(since) {
		o.changed.Wait()
	}
	o.over = true
	longest, last := time.Duration(0), since
	for _, end := range o.ends {
		if end.After(since) {
			longest, last = max(longest, end.Sub(last)), end
		}
	}
	return longest, nil
}
