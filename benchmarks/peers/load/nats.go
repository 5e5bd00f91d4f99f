package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	natsio "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// One connection for each caller: a publish waits for its acknowledgement.
type nats struct {
	endpoints []string
	callers   []jetstream.JetStream
	stream    jetstream.Stream
}

func connectNats(endpoints []string) (peer, error) {
	return &nats{endpoints: endpoints}, nil
}

// prepare connects the callers and makes the stream: in files, with three replicas.
func (n *nats) prepare(ctx context.Context, given options) error {
	for len(n.callers) < given.number("clients") {
		connection, err := natsio.Connect(strings.Join(n.endpoints, ","), natsio.MaxReconnects(-1), natsio.ReconnectWait(10*time.Millisecond))
		if err != nil {
			return err
		}
		caller, err := jetstream.New(connection)
		if err != nil {
			return err
		}
		n.callers = append(n.callers, caller)
	}
	stream, err := n.callers[0].CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log.>"}, Replicas: 3, Storage: jetstream.FileStorage,
	})
	n.stream = stream
	return err
}

func (n *nats) step(ctx context.Context, command string, client, _ int, value []byte) error {
	if command != "publish" {
		return fmt.Errorf("no command %s", command)
	}
	_, err := n.callers[client].Publish(ctx, "log.entry", value)
	return err
}

// leader is the name of the server that leads the stream, once all have what it has.
func (n *nats) leader() (string, error) {
	for begun := time.Now(); time.Since(begun) < 3*patience; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		info, err := n.stream.Info(ctx)
		cancel()
		if err == nil && info.Cluster.Leader != "" && level(info.Cluster.Replicas) {
			return info.Cluster.Leader, nil
		}
	}
	return "", fmt.Errorf("the stream of NATS is not whole")
}

func level(replicas []*jetstream.PeerInfo) bool {
	for _, replica := range replicas {
		if replica.Offline || !replica.Current {
			return false
		}
	}
	return len(replicas) == 2
}
