package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

const perTransaction = 10

func (s *story) transactional(id string) (sarama.AsyncProducer, error) {
	config := s.config()
	config.Producer.Transaction.ID = s.prefix + id
	return sarama.NewAsyncProducer(s.bootstrap, config)
}

// plain writes one record without a transaction to each partition, so that a reader knows the end.
func (s *story) plain(topic string) error {
	producer, err := sarama.NewAsyncProducer(s.bootstrap, s.config())
	if err != nil {
		return err
	}
	defer producer.Close()
	return s.send(producer, topic, "end", 1)
}

func (s *story) tell(ctx context.Context, topic string) error {
	levels := map[string]sarama.IsolationLevel{"committed": sarama.ReadCommitted, "uncommitted": sarama.ReadUncommitted}
	for _, name := range []string{"committed", "uncommitted"} {
		for partition := range int32(partitions) {
			found, err := s.read(ctx, topic, partition, levels[name])
			if err != nil {
				return err
			}
			s.say("%s-%d %s: %d values %q", topic, partition, name, len(found), found)
		}
	}
	return nil
}

// transactions commits, aborts and commits.
func (s *story) transactions(ctx context.Context) error {
	if err := s.create("txn", partitions, nil); err != nil {
		return err
	}
	producer, err := s.transactional("writer")
	if err != nil {
		return err
	}
	for _, what := range []string{"first", "aborted", "second"} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := s.send(producer, "txn", what, perTransaction); err != nil {
			return err
		}
		end := producer.CommitTxn
		if what == "aborted" {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := producer.Close(); err != nil {
		return err
	}
	if err := s.plain("txn"); err != nil {
		return err
	}
	return s.tell(ctx, "txn")
}

// fencing has a second producer take the transactional id of one that has an open transaction.
func (s *story) fencing(ctx context.Context) error {
	if err := s.create("fenced", partitions, nil); err != nil {
		return err
	}
	zombie, err := s.transactional("owned")
	if err != nil {
		return err
	}
	if err := zombie.BeginTxn(); err != nil {
		return err
	}
	if err := s.send(zombie, "fenced", "zombie", perTransaction); err != nil {
		return err
	}
	successor, err := s.transactional("owned")
	if err != nil {
		return err
	}
	refused := zombie.CommitTxn()
	if refused == nil {
		return errors.New("the zombie has committed")
	}
	s.say("commit of the zombie: %s", code(refused))
	s.say("status of the zombie: %s", zombie.TxnStatus())
	if err := successor.BeginTxn(); err != nil {
		return err
	}
	if err := s.send(successor, "fenced", "successor", perTransaction); err != nil {
		return err
	}
	if err := successor.CommitTxn(); err != nil {
		return err
	}
	zombie.Close()
	if err := successor.Close(); err != nil {
		return err
	}
	if err := s.plain("fenced"); err != nil {
		return err
	}
	return s.tell(ctx, "fenced")
}

// mover is the member of a group that moves records in transactions with their offsets; it aborts every third one.
type mover struct {
	*story
	mutex    sync.Mutex
	producer sarama.AsyncProducer
	group    string
	target   string
	rounds   int
	moved    int
	wanted   int
	failure  error
	cancel   context.CancelFunc
}

func (m *mover) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *mover) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *mover) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		var batch []*sarama.ConsumerMessage
		for len(batch) < perTransaction {
			select {
			case message := <-claim.Messages():
				batch = append(batch, message)
			case <-session.Context().Done():
				return nil
			}
		}
		if err := m.moveBatch(session, batch); err != nil {
			m.cancel()
			return err
		}
	}
}

// moveBatch has the producer to itself until the transaction is committed.
func (m *mover) moveBatch(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for isDone := false; !isDone; {
		if isDone, m.failure = m.move(session, batch); m.failure != nil {
			return m.failure
		}
	}
	if m.moved += len(batch); m.moved == m.wanted {
		m.cancel()
	}
	return nil
}

func (m *mover) move(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) (bool, error) {
	m.rounds++
	if err := m.producer.BeginTxn(); err != nil {
		return false, err
	}
	for _, message := range batch {
		m.producer.Input() <- &sarama.ProducerMessage{
			Topic: m.target, Partition: message.Partition, Value: sarama.ByteEncoder(message.Value),
		}
		select {
		case <-m.producer.Successes():
		case failed := <-m.producer.Errors():
			return false, failed.Err
		}
	}
	membership := sarama.NewConsumerGroupMetadataFromSession(session, m.group, nil)
	if err := m.producer.AddMessageToTxnWithGroupMetadata(batch[len(batch)-1], membership, nil); err != nil {
		return false, err
	}
	if m.rounds%3 == 2 {
		return false, m.producer.AbortTxn()
	}
	return true, m.producer.CommitTxn()
}

// move consumes, transforms and produces.
func (s *story) move(ctx context.Context) error {
	for _, topic := range []string{"source", "target"} {
		if err := s.create(topic, partitions, nil); err != nil {
			return err
		}
	}
	feed, err := sarama.NewAsyncProducer(s.bootstrap, s.config())
	if err != nil {
		return err
	}
	defer feed.Close()
	if err := s.send(feed, "source", "moved", 2*perTransaction); err != nil {
		return err
	}
	producer, err := s.transactional("mover")
	if err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(s.bootstrap, s.prefix+"movers", s.config())
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	moving := &mover{
		story: s, producer: producer, group: s.prefix + "movers", target: s.prefix + "target",
		wanted: 2 * perTransaction * partitions, cancel: cancel,
	}
	for inner.Err() == nil {
		if err := group.Consume(inner, []string{s.prefix + "source"}, moving); err != nil && inner.Err() == nil {
			return err
		}
	}
	if moving.failure != nil {
		return moving.failure
	}
	if err := group.Close(); err != nil {
		return err
	}
	if err := producer.Close(); err != nil {
		return err
	}
	s.say("moved %d in %d transactions", moving.moved, moving.rounds)
	if err := s.plain("target"); err != nil {
		return err
	}
	for partition := range int32(partitions) {
		found, err := s.read(ctx, "target", partition, sarama.ReadCommitted)
		if err != nil {
			return err
		}
		s.say("target-%d committed: %d values %q", partition, len(found), found)
	}
	offsets, err := s.admin.ListConsumerGroupOffsets(s.prefix+"movers", map[string][]int32{s.prefix + "source": {0, 1, 2}})
	if err != nil {
		return err
	}
	for partition := range int32(partitions) {
		s.say("source-%d: committed %d", partition, offsets.GetBlock(s.prefix+"source", partition).Offset)
	}
	return nil
}
