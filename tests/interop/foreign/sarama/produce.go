package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

// codecs writes with each codec and reads the same values back, in order.
func (s *story) codecs(ctx context.Context) error {
	const count = 400
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone,
		sarama.CompressionGZIP,
		sarama.CompressionSnappy,
		sarama.CompressionLZ4,
		sarama.CompressionZSTD,
	}
	for _, codec := range codecs {
		topic := "codec-" + codec.String()
		if err := s.create(topic, partitions, nil); err != nil {
			return err
		}
		config := s.config()
		config.Producer.Compression = codec
		producer, err := sarama.NewAsyncProducer(s.bootstrap, config)
		if err != nil {
			return err
		}
		err = s.send(producer, topic, codec.String(), count)
		producer.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", topic, err)
		}
		for partition := range int32(partitions) {
			found, err := s.read(ctx, topic, partition, sarama.ReadUncommitted)
			if err != nil {
				return fmt.Errorf("%s: %w", topic, err)
			}
			for number, text := range found {
				if text != value(codec.String(), partition, number) {
					return fmt.Errorf("%s-%d: %q is number %d", topic, partition, text, number)
				}
			}
			s.say("%s-%d: %d values", topic, partition, len(found))
		}
	}
	return nil
}
