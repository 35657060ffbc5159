package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sequence writes 0, 1, 2, ... to one partition until a line arrives on standard input, and follows all partitions of the
// topic until standard input ends. Lines out: "status ACKED SENT NEXT...", one NEXT per partition; "flushed"; "failed WHAT".
type sequence struct {
	bootstrap, topic string
	partition        int32
	acked, sent      atomic.Int64
	next             []atomic.Int64
	stopping         chan struct{}
	output           sync.Mutex
}

// sequenceOf is the client of `franz sequence BOOTSTRAP TOPIC PARTITION PARTITIONS SEED`, and its seed.
func sequenceOf(arguments []string) (*sequence, int64, error) {
	if len(arguments) != 5 {
		return nil, 0, errors.New("usage: franz sequence BOOTSTRAP TOPIC PARTITION PARTITIONS SEED")
	}
	var numbers [3]int64
	for index, text := range arguments[2:] {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, 0, err
		}
		numbers[index] = number
	}
	return &sequence{
		bootstrap: arguments[0],
		topic:     arguments[1],
		partition: int32(numbers[0]),
		next:      make([]atomic.Int64, numbers[1]),
		stopping:  make(chan struct{}),
	}, numbers[2], nil
}

func (s *sequence) say(line string) {
	s.output.Lock()
	defer s.output.Unlock()
	fmt.Println(line)
}

func (s *sequence) failed(format string, arguments ...any) {
	s.say("failed " + strings.ReplaceAll(fmt.Sprintf(format, arguments...), "\n", " "))
}

func (s *sequence) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(s.bootstrap, ",")...),
		kgo.DialTimeout(time.Second),
		kgo.RequestTimeoutOverhead(3 * time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}, more...)
}

func (s *sequence) run(seed int64) {
	go s.report()
	go s.produce(rand.New(rand.NewSource(seed)))
	go s.follow()
	input := bufio.NewScanner(os.Stdin)
	if input.Scan() {
		close(s.stopping)
		for input.Scan() {
		}
	}
}

func (s *sequence) status() string {
	line := fmt.Sprintf("status %d %d", s.acked.Load(), s.sent.Load())
	for index := range s.next {
		line += fmt.Sprintf(" %d", s.next[index].Load())
	}
	return line
}

func (s *sequence) report() {
	before := ""
	for {
		if line := s.status(); line != before {
			before = line
			s.say(line)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *sequence) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

func (s *sequence) produce(chance *rand.Rand) {
	client, err := kgo.NewClient(s.options(
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ProducerLinger(time.Millisecond),
		kgo.ProduceRequestTimeout(3*time.Second),
		kgo.MaxBufferedRecords(5000),
	)...)
	if err != nil {
		s.failed("producer: %v", err)
		return
	}
	noise := make([]byte, 1<<16)
	chance.Read(noise)
	for number := int64(0); !s.isStopping(); number++ {
		start := chance.Intn(60_000)
		value := append(binary.BigEndian.AppendUint64(nil, uint64(number)), noise[start:start+chance.Intn(1000)]...)
		client.Produce(context.Background(), &kgo.Record{Topic: s.topic, Partition: s.partition, Value: value},
			func(_ *kgo.Record, failure error) {
				if failure != nil {
					s.failed("record %d: %v", number, failure)
				} else if !s.acked.CompareAndSwap(number, number+1) {
					s.failed("acknowledged %d where %d was next", number, s.acked.Load())
				}
			})
		s.sent.Store(number + 1)
		if number%10 == 9 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := client.Flush(context.Background()); err != nil {
		s.failed("flush: %v", err)
		return
	}
	s.say(s.status()) // before it, so that the supervisor has the last numbers
	s.say("flushed")
}

func (s *sequence) follow() {
	starts := map[int32]kgo.Offset{}
	for index := range s.next {
		starts[int32(index)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(s.options(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: starts}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // a truncation is a failure
		kgo.FetchMaxWait(100*time.Millisecond),
	)...)
	if err != nil {
		s.failed("follower: %v", err)
		return
	}
	offsets := make([]int64, len(s.next))
	for {
		fetches := client.PollFetches(context.Background())
		for _, found := range fetches.Errors() {
			var loss *kgo.ErrDataLoss
			if errors.As(found.Err, &loss) || errors.Is(found.Err, kerr.OffsetOutOfRange) {
				s.failed("follower: partition %d: %v", found.Partition, found.Err)
				return
			}
		}
		isWrong := false
		fetches.EachRecord(func(record *kgo.Record) {
			wanted := s.next[record.Partition].Load()
			number := int64(-1)
			if len(record.Value) >= 8 {
				number = int64(binary.BigEndian.Uint64(record.Value))
			}
			if isWrong || number != wanted || record.Offset < offsets[record.Partition] {
				if !isWrong {
					s.failed("follower: partition %d offset %d: record %d, %d was next",
						record.Partition, record.Offset, number, wanted)
				}
				isWrong = true
				return
			}
			offsets[record.Partition] = record.Offset + 1
			s.next[record.Partition].Store(number + 1)
		})
		if isWrong {
			return
		}
	}
}
