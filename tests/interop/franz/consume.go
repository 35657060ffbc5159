package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// How long a pass may take before it counts as stuck.
const passTimeout = 2 * time.Minute

// consume reads the first records of partition 0 of a topic and prints the CPU of each pass, user and system, in
// nanoseconds per record. The first pass warms up and is not printed.
func consume(bootstrap, topic string, records, passes, fetchBytes int) error {
	for pass := 0; pass <= passes; pass++ {
		before := cpu()
		if err := readOnce(bootstrap, topic, records, fetchBytes); err != nil {
			return err
		}
		if pass > 0 {
			fmt.Printf("%.1f\n", float64((cpu()-before).Nanoseconds())/float64(records))
		}
	}
	return nil
}

func readOnce(bootstrap, topic string, records, fetchBytes int) error {
	ctx, cancel := context.WithTimeout(context.Background(), passTimeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.FetchMaxPartitionBytes(int32(fetchBytes)),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	count, size := 0, 0
	for count < records {
		fetches := client.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			return failure.Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			size += len(record.Value)
			count++
		})
	}
	return nil
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
