package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// member is one consumer of a group: what it claims now and the values it took and committed.
type member struct {
	mutex  sync.Mutex
	claims int
	taken  []string
	group  sarama.ConsumerGroup
	ended  chan error
	cancel context.CancelFunc
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.claims = 0
	for _, found := range session.Claims() {
		m.claims += len(found)
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.mutex.Lock()
		m.taken = append(m.taken, string(message.Value))
		m.mutex.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

func (m *member) state() (int, int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.claims, len(m.taken)
}

func (s *story) join(name, topic string, strategy sarama.BalanceStrategy) (*member, error) {
	config := s.config()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	group, err := sarama.NewConsumerGroup(s.bootstrap, s.prefix+name, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	made := &member{group: group, ended: make(chan error, 1), cancel: cancel}
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{s.prefix + topic}, made); err != nil {
				if !errors.Is(err, sarama.ErrClosedConsumerGroup) {
					made.ended <- err
				}
				return
			}
		}
	}()
	return made, nil
}

func (m *member) leave() error {
	m.cancel()
	if err := m.group.Close(); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		return err
	default:
		return nil
	}
}

func until(ctx context.Context, what string, condition func() bool) error {
	for !condition() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// group has two members share the partitions, one leave, and a later one go on where they stopped.
func (s *story) group(ctx context.Context) error {
	strategies := []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(),
		sarama.NewBalanceStrategyRoundRobin(),
		sarama.NewBalanceStrategySticky(),
	}
	for _, strategy := range strategies {
		if err := s.groupWith(ctx, strategy); err != nil {
			return fmt.Errorf("%s: %w", strategy.Name(), err)
		}
	}
	return nil
}

func (s *story) groupWith(ctx context.Context, strategy sarama.BalanceStrategy) error {
	const count = 50
	topic := "shared-" + strategy.Name()
	name := "group-" + strategy.Name()
	if err := s.create(topic, partitions, nil); err != nil {
		return err
	}
	producer, err := sarama.NewAsyncProducer(s.bootstrap, s.config())
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := s.send(producer, topic, "before", count); err != nil {
		return err
	}
	first, err := s.join(name, topic, strategy)
	if err != nil {
		return err
	}
	claimed := func(m *member, claims int) func() bool {
		return func() bool { now, _ := m.state(); return now == claims }
	}
	took := func(m *member, taken int) func() bool {
		return func() bool { _, now := m.state(); return now >= taken }
	}
	if err := until(ctx, "all read by one", took(first, count*partitions)); err != nil {
		return err
	}
	second, err := s.join(name, topic, strategy)
	if err != nil {
		return err
	}
	shared := func() bool {
		a, _ := first.state()
		b, _ := second.state()
		return a+b == partitions && a > 0 && b > 0
	}
	if err := until(ctx, "shared by two", shared); err != nil {
		return err
	}
	if err := s.send(producer, topic, "shared", count); err != nil {
		return err
	}
	both := func() bool {
		_, a := first.state()
		_, b := second.state()
		return a+b == 2*count*partitions
	}
	if err := until(ctx, "all read by two", both); err != nil {
		return err
	}
	if err := first.leave(); err != nil {
		return err
	}
	if err := until(ctx, "all with the second", claimed(second, partitions)); err != nil {
		return err
	}
	if err := second.leave(); err != nil {
		return err
	}
	if err := s.send(producer, topic, "after", count); err != nil {
		return err
	}
	third, err := s.join(name, topic, strategy)
	if err != nil {
		return err
	}
	if err := until(ctx, "the rest read", took(third, count*partitions)); err != nil {
		return err
	}
	if err := third.leave(); err != nil {
		return err
	}
	_, taken := third.state()
	_, a := first.state()
	_, b := second.state()
	s.say("%s: two members read %d, a later one %d", name, a+b, taken)
	offsets, err := s.admin.ListConsumerGroupOffsets(s.prefix+name, map[string][]int32{s.prefix + topic: {0, 1, 2}})
	if err != nil {
		return err
	}
	for partition := range int32(partitions) {
		block := offsets.GetBlock(s.prefix+topic, partition)
		s.say("%s-%d: committed %d, %s", topic, partition, block.Offset, code2(block.Err))
	}
	return nil
}

func code2(found sarama.KError) string {
	if found == sarama.ErrNoError {
		return "none"
	}
	return code(found)
}
