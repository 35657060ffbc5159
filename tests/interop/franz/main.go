// franz writes topics with franz-go, with each codec and each acks, and reads them as consumer groups.
//
//	franz BOOTSTRAP RECORDS
//	franz sequence BOOTSTRAP TOPIC PARTITION PARTITIONS SEED
//	franz consume BOOTSTRAP TOPIC RECORDS PASSES FETCH_BYTES
//	franz new-group BOOTSTRAP TOPIC GROUP classic|consumer TIMEOUT_SECONDS
//
// It ends with an error if a record is lost, doubled, changed or out of order within its partition.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 12

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sequence" {
		client, seed, err := sequenceOf(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "franz:", err)
			os.Exit(2)
		}
		client.run(seed)
		return
	}
	if len(os.Args) == 7 && os.Args[1] == "consume" {
		numbers := make([]int, 3)
		var err error
		for index, text := range os.Args[4:] {
			if numbers[index], err = strconv.Atoi(text); err != nil {
				fmt.Fprintln(os.Stderr, "franz:", err)
				os.Exit(2)
			}
		}
		if err = consume(os.Args[2], os.Args[3], numbers[0], numbers[1], numbers[2]); err != nil {
			fmt.Fprintln(os.Stderr, "franz:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 7 && os.Args[1] == "new-group" {
		seconds, err := strconv.Atoi(os.Args[6])
		if err == nil {
			err = newGroup(os.Args[2], os.Args[3], os.Args[4], os.Args[5], time.Duration(seconds)*time.Second)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "franz:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: franz BOOTSTRAP RECORDS")
		os.Exit(2)
	}
	records, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(os.Args[1], records)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "franz:", err)
		os.Exit(1)
	}
}

func run(bootstrap string, records int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for _, acks := range []string{"all", "leader", "none"} {
			topic := "franz-" + name + "-" + acks
			options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codecs[name])}
			switch acks {
			case "leader":
				options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
			case "none":
				options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
			}
			if err := roundTrip(ctx, bootstrap, topic, records, options); err != nil {
				return fmt.Errorf("%s: %w", topic, err)
			}
		}
	}
	return nil
}

// waitUntilOpen returns once each partition has its leader: with acks=0 a client does not hear of a broker that is not yet.
func waitUntilOpen(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil && ends.Error() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the partitions have no leader: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func value(partition, number int) []byte {
	return append([]byte(fmt.Sprintf("%d/%d/", partition, number)), bytes.Repeat([]byte{'v'}, number%300)...)
}

func roundTrip(ctx context.Context, bootstrap, topic string, records int, options []kgo.Opt) error {
	producer, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	admin := kadm.NewClient(producer)
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return err
	}
	if err := waitUntilOpen(ctx, admin, topic); err != nil {
		return err
	}
	perPartition := records / partitions
	for number := range perPartition {
		for partition := range partitions {
			record := &kgo.Record{
				Topic:     topic,
				Partition: int32(partition),
				Key:       []byte(strconv.Itoa(number)),
				Value:     value(partition, number),
				Headers:   []kgo.RecordHeader{{Key: "n", Value: []byte{byte(number)}}},
			}
			producer.Produce(ctx, record, func(_ *kgo.Record, failure error) {
				if failure != nil && err == nil {
					err = failure
				}
			})
		}
	}
	if flushed := producer.Flush(ctx); flushed != nil {
		return flushed
	}
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := read(ctx, bootstrap, topic, perPartition); err != nil {
		return err
	}
	return checkCommitted(ctx, admin, topic, perPartition)
}

// read consumes everything as the one member of a group and commits at the end.
func read(ctx context.Context, bootstrap, topic string, perPartition int) error {
	next := make([]int, partitions)
	left := perPartition * partitions
	member, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("group-"+topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxPartitionBytes(64<<10),
	)
	if err != nil {
		return err
	}
	defer member.Close()
	for left > 0 {
		fetches := member.PollFetches(ctx)
		if failures := fetches.Errors(); len(failures) > 0 {
			return fmt.Errorf("fetch %d of %s: %w", failures[0].Partition, failures[0].Topic, failures[0].Err)
		}
		var wrong error
		fetches.EachRecord(func(record *kgo.Record) {
			number := next[record.Partition]
			isEqual := bytes.Equal(record.Value, value(int(record.Partition), number)) &&
				string(record.Key) == strconv.Itoa(number) && len(record.Headers) == 1 && record.Offset == int64(number)
			if !isEqual && wrong == nil {
				wrong = fmt.Errorf("partition %d offset %d: %q where number %d was next",
					record.Partition, record.Offset, record.Key, number)
			}
			next[record.Partition]++
			left--
		})
		if wrong != nil {
			return wrong
		}
	}
	return member.CommitUncommittedOffsets(ctx)
}

func checkCommitted(ctx context.Context, admin *kadm.Client, topic string, perPartition int) error {
	offsets, err := admin.FetchOffsets(ctx, "group-"+topic)
	if err != nil {
		return err
	}
	for partition := range partitions {
		offset, found := offsets.Lookup(topic, int32(partition))
		if !found || offset.At != int64(perPartition) {
			return fmt.Errorf("partition %d: committed %d of %d", partition, offset.At, perPartition)
		}
	}
	_, err = admin.DeleteTopics(ctx, topic)
	return err
}
