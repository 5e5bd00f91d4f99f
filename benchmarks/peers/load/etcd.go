package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// One client of etcd for all callers: its connection carries many calls at once.
type etcd struct {
	client *clientv3.Client
}

func connectEtcd(endpoints []string) (peer, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience})
	if err != nil {
		return nil, err
	}
	return &etcd{client}, nil
}

func (e *etcd) prepare(ctx context.Context, _ options) error {
	_, err := e.client.Put(ctx, "ready", "1")
	return err
}

func (e *etcd) step(ctx context.Context, command string, client, number int, value []byte) error {
	switch command {
	case "put":
		_, err := e.client.Put(ctx, key(client, number), string(value))
		return err
	case "get": // linearizable, as is the default
		_, err := e.client.Get(ctx, key(client, 0))
		return err
	default:
		return fmt.Errorf("no command %s", command)
	}
}

func key(client, number int) string {
	return "/keys/" + strconv.Itoa(client) + "/" + strconv.Itoa(number)
}

// leader is the name of the member that leads, once all members serve.
func (e *etcd) leader() (string, error) {
	for begun := time.Now(); time.Since(begun) < 3*patience; time.Sleep(10 * time.Millisecond) {
		if name, err := e.ledBy(); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("the cluster of etcd is not whole")
}

func (e *etcd) ledBy() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	members, err := e.client.MemberList(ctx)
	if err != nil {
		return "", err
	}
	name := ""
	for _, endpoint := range e.client.Endpoints() {
		status, err := e.client.Status(ctx, endpoint)
		if err != nil {
			return "", err
		}
		for _, member := range members.Members {
			if member.ID == status.Leader {
				name = member.Name
			}
		}
	}
	if name == "" {
		return "", fmt.Errorf("nobody leads")
	}
	return name, nil
}
