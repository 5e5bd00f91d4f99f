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
	anywhere  []jetstream.JetStream // callers, each connected to any server
	aimed     []jetstream.JetStream // callers, each connected to the one that leads
	callers   []jetstream.JetStream // those of the two that act
	stream    jetstream.Stream
}

func init() { connects["nats"] = connectNats }

func connectNats(endpoints []string) (peer, error) {
	return &nats{endpoints: endpoints}, nil
}

func (n *nats) connected(server string) (jetstream.JetStream, error) {
	connection, err := natsio.Connect(server, natsio.MaxReconnects(-1), natsio.ReconnectWait(10*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return jetstream.New(connection)
}

// prepare connects the callers and makes the stream: in files, with three replicas.
func (n *nats) prepare(ctx context.Context, given options) error {
	for len(n.anywhere) < given.number("clients") {
		caller, err := n.connected(strings.Join(n.endpoints, ","))
		if err != nil {
			return err
		}
		n.anywhere = append(n.anywhere, caller)
	}
	n.spread()
	stream, err := n.callers[0].CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "log", Subjects: []string{"log.>"}, Replicas: 3, Storage: jetstream.FileStorage,
	})
	n.stream = stream
	return err
}

// aim connects the callers to the server that leads the stream: any other one passes each message on.
func (n *nats) aim() error {
	n.spread()
	leader, err := n.leader()
	if err != nil {
		return err
	}
	for _, endpoint := range n.endpoints {
		for len(n.aimed) < len(n.anywhere) {
			caller, err := n.connected(endpoint)
			if err != nil {
				return err
			}
			if caller.Conn().ConnectedServerName() != leader {
				caller.Conn().Close()
				break
			}
			n.aimed = append(n.aimed, caller)
		}
	}
	if len(n.aimed) < len(n.anywhere) {
		return fmt.Errorf("the leader of the stream is not reached")
	}
	n.callers = n.aimed
	return nil
}

// spread lets the callers act by the connections that go to any server.
func (n *nats) spread() {
	for _, each := range n.aimed {
		each.Conn().Close()
	}
	n.aimed, n.callers = nil, n.anywhere
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
