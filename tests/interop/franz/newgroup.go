package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newGroup prints the milliseconds from the making of a client to its first record, in a group of its own.
func newGroup(bootstrap, topic, group, protocol string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	began := time.Now()
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			fmt.Println(float64(time.Since(began)) / float64(time.Millisecond))
			return nil
		}
		if ctx.Err() != nil {
			return errors.New("no record came")
		}
	}
}
