// sarama tells what an application of sarama sees of a broker, step by step.
//
//	sarama BOOTSTRAP VERSION PREFIX
//
// VERSION is the release of Kafka whose protocol versions sarama speaks. Topics and groups begin with PREFIX, which is
// left out of what is printed: two brokers that behave alike yield the same lines.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	patience   = 60 * time.Second
)

// story is one run against one broker.
type story struct {
	bootstrap []string
	version   sarama.KafkaVersion
	prefix    string
	admin     sarama.ClusterAdmin
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: sarama BOOTSTRAP VERSION PREFIX")
		os.Exit(2)
	}
	version, err := sarama.ParseKafkaVersion(os.Args[2])
	if err == nil {
		told := &story{bootstrap: []string{os.Args[1]}, version: version, prefix: os.Args[3]}
		err = told.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
}

func (s *story) run() error {
	var err error
	if s.admin, err = sarama.NewClusterAdmin(s.bootstrap, s.config()); err != nil {
		return err
	}
	defer s.admin.Close()
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"codecs", s.codecs},
		{"group", s.group},
		{"transactions", s.transactions},
		{"fencing", s.fencing},
		{"move", s.move},
		{"configs", s.configs},
		{"groups", s.groups},
		{"topics", s.topics},
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		err := step.run(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (s *story) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = s.version
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Return.Errors = false
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	return config
}

// say prints a line without the prefix of this run's names.
func (s *story) say(format string, args ...any) {
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, args...), s.prefix, ""))
}

// code is the name of what a broker answered, without words that a broker may choose.
func code(err error) string {
	if err == nil {
		return "none"
	}
	text := err.Error()
	if at := strings.Index(text, " - "); at > 0 {
		text = text[:at]
	}
	return text
}

func (s *story) create(topic string, count int32, entries map[string]*string) error {
	detail := &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1, ConfigEntries: entries}
	if err := s.admin.CreateTopic(s.prefix+topic, detail, false); err != nil {
		return err
	}
	return s.awaitTopic(s.prefix+topic, count)
}

// awaitTopic returns when a topic's leaders serve it: a controller answers before brokers have opened the partitions.
func (s *story) awaitTopic(name string, count int32) error {
	client, err := sarama.NewClient(s.bootstrap, s.config())
	if err != nil {
		return err
	}
	defer client.Close()
	end := time.Now().Add(patience)
	for partition := int32(0); partition < count; {
		if _, err := client.GetOffset(name, partition, sarama.OffsetNewest); err == nil {
			partition++
		} else if time.Now().After(end) {
			return err
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// send produces count values "LABEL/PARTITION/NUMBER" to each partition.
func (s *story) send(producer sarama.AsyncProducer, topic, label string, count int) error {
	total := count * partitions
	failures := make(chan error, 1)
	go func() {
		var first error
		for range total {
			select {
			case <-producer.Successes():
			case failed := <-producer.Errors():
				if first == nil {
					first = failed.Err
				}
			}
		}
		failures <- first
	}()
	for number := range count {
		for partition := range int32(partitions) {
			producer.Input() <- &sarama.ProducerMessage{
				Topic:     s.prefix + topic,
				Partition: partition,
				Key:       sarama.StringEncoder(label),
				Value:     sarama.StringEncoder(value(label, partition, number)),
				Headers:   []sarama.RecordHeader{{Key: []byte("n"), Value: []byte{byte(number)}}},
			}
		}
	}
	return <-failures
}

func value(label string, partition int32, number int) string {
	return fmt.Sprintf("%s/%d/%d/%s", label, partition, number, strings.Repeat("v", number%300))
}

// read returns what a partition holds up to its end, at the isolation level.
func (s *story) read(ctx context.Context, topic string, partition int32, level sarama.IsolationLevel) ([]string, error) {
	config := s.config()
	config.Consumer.IsolationLevel = level
	client, err := sarama.NewClient(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	end, err := client.GetOffset(s.prefix+topic, partition, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	reader, err := consumer.ConsumePartition(s.prefix+topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer reader.AsyncClose()
	var found []string
	for {
		select {
		case message := <-reader.Messages():
			found = append(found, string(message.Value))
			// The last record of each step is a plain one: it ends what is read. A marker may follow it, which sarama
			// does not show: EndTxn is answered before the markers are written.
			if message.Offset == end-1 || strings.HasPrefix(string(message.Value), "end/") {
				return found, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%d values up to offset %d: %w", len(found), end, ctx.Err())
		}
	}
}
