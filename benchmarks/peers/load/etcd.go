package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// One client of etcd for all callers: its connection carries many calls at once.
type etcd struct {
	client    *clientv3.Client
	endpoints []string
}

func init() { connects["etcd"] = connectEtcd }

func connectEtcd(endpoints []string) (peer, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience})
	if err != nil {
		return nil, err
	}
	return &etcd{client, endpoints}, nil
}

// aim lets the load go to the member that leads: any other one passes each call on.
func (e *etcd) aim() error {
	member, err := e.whole()
	if err == nil {
		e.client.SetEndpoints(member.ClientURLs...)
	}
	return err
}

// spread lets a call go to any member, as users of a cluster have it.
func (e *etcd) spread() {
	e.client.SetEndpoints(e.endpoints...)
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

// leader is the name of the member that leads.
func (e *etcd) leader() (string, error) {
	member, err := e.whole()
	if err != nil {
		return "", err
	}
	return member.Name, nil
}

// whole is the member that leads, once all members serve.
func (e *etcd) whole() (*etcdserverpb.Member, error) {
	e.spread()
	for begun := time.Now(); time.Since(begun) < 3*patience; time.Sleep(10 * time.Millisecond) {
		if member, err := e.ledBy(); err == nil {
			return member, nil
		}
	}
	return nil, fmt.Errorf("the cluster of etcd is not whole")
}

func (e *etcd) ledBy() (*etcdserverpb.Member, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	members, err := e.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var leader *etcdserverpb.Member
	for _, endpoint := range e.endpoints {
		status, err := e.client.Status(ctx, endpoint)
		if err != nil {
			return nil, err
		}
		for _, member := range members.Members {
			if member.ID == status.Leader {
				leader = member
			}
		}
	}
	if leader == nil {
		return nil, fmt.Errorf("nobody leads")
	}
	return leader, nil
}
