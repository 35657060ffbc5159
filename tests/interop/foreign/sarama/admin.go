package main

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/IBM/sarama"
)

// configs describes, alters and deletes settings of a topic, and describes a broker.
func (s *story) configs(context.Context) error {
	retention := "3600000"
	if err := s.create("set", partitions, map[string]*string{"retention.ms": &retention}); err != nil {
		return err
	}
	if err := s.describe("set"); err != nil {
		return err
	}
	compact := "compact"
	if err := s.admin.AlterConfig(sarama.TopicResource, s.prefix+"set", map[string]*string{"cleanup.policy": &compact}, false); err != nil {
		s.say("alter: %s", code(err))
	}
	if s.version.IsAtLeast(sarama.V2_3_0_0) {
		size := "1000000"
		entries := map[string]sarama.IncrementalAlterConfigsEntry{
			"segment.bytes":  {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size},
			"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: ptr("delete")},
		}
		if err := s.admin.IncrementalAlterConfig(sarama.TopicResource, s.prefix+"set", entries, false); err != nil {
			s.say("incremental alter: %s", code(err))
		}
	}
	if err := s.describe("set"); err != nil {
		return err
	}
	bad := "many"
	err := s.admin.AlterConfig(sarama.TopicResource, s.prefix+"set", map[string]*string{"retention.ms": &bad}, false)
	s.say("bad value: %s", code(err))
	_, err = s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: s.prefix + "none"})
	s.say("unknown topic: %s", code(err))
	return nil
}

func ptr(text string) *string { return &text }

func (s *story) describe(topic string) error {
	entries, err := s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: s.prefix + topic})
	if err != nil {
		return err
	}
	sort.Slice(entries, func(a, b int) bool { return entries[a].Name < entries[b].Name })
	for _, entry := range entries {
		s.say("%s %s=%s default %t source %s read-only %t sensitive %t synonyms %d",
			topic, entry.Name, entry.Value, entry.Default, entry.Source, entry.ReadOnly, entry.Sensitive, len(entry.Synonyms))
	}
	return nil
}

// groups lists and describes groups, deletes an offset and a group, and asks for what is not there.
func (s *story) groups(ctx context.Context) error {
	found, err := s.admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	var names []string
	for name, kind := range found {
		if strings.HasPrefix(name, s.prefix) {
			names = append(names, name+" "+kind)
		}
	}
	sort.Strings(names)
	s.say("groups %q", names)
	reader, err := s.join("group-range", "shared-range", sarama.NewBalanceStrategyRange())
	if err != nil {
		return err
	}
	isStable := func() bool { claims, _ := reader.state(); return claims == partitions }
	if err := until(ctx, "stable", isStable); err != nil {
		return err
	}
	if err := s.describeGroups(); err != nil {
		return err
	}
	s.say("delete a group with a member: %s", code(s.admin.DeleteConsumerGroup(s.prefix+"group-range")))
	if err := reader.leave(); err != nil {
		return err
	}
	if err := s.describeGroups(); err != nil {
		return err
	}
	if s.version.IsAtLeast(sarama.V2_4_0_0) {
		s.say("delete an offset: %s", code(s.admin.DeleteConsumerGroupOffset(s.prefix+"group-range", s.prefix+"shared-range", 1)))
	}
	offsets, err := s.admin.ListConsumerGroupOffsets(s.prefix+"group-range", nil)
	if err != nil {
		s.say("all offsets: %s", code(err))
	} else {
		for partition := range int32(partitions) {
			if block := offsets.GetBlock(s.prefix+"shared-range", partition); block != nil {
				s.say("group-range-%d: %d", partition, block.Offset)
			}
		}
	}
	s.say("delete a group: %s", code(s.admin.DeleteConsumerGroup(s.prefix+"group-range")))
	s.say("delete no group: %s", code(s.admin.DeleteConsumerGroup(s.prefix+"none")))
	return nil
}

func (s *story) describeGroups() error {
	described, err := s.admin.DescribeConsumerGroups([]string{s.prefix + "group-range", s.prefix + "none"})
	if err != nil {
		return err
	}
	sort.Slice(described, func(a, b int) bool { return described[a].GroupId < described[b].GroupId })
	for _, group := range described {
		s.say("group %s: %s state %q type %q protocol %q", group.GroupId, code2(group.Err), group.State, group.ProtocolType, group.Protocol)
		for _, member := range group.Members {
			assignment, err := member.GetMemberAssignment()
			if err != nil {
				return err
			}
			s.say("member %s: %v", member.ClientId, assignment.Topics)
		}
	}
	return nil
}

// topics adds partitions, deletes records and topics, and asks for the rest of what an administrator may.
func (s *story) topics(ctx context.Context) error {
	topic := "codec-none"
	s.say("partitions: %s", code(s.admin.CreatePartitions(s.prefix+topic, partitions+2, nil, false)))
	s.say("fewer partitions: %s", code(s.admin.CreatePartitions(s.prefix+topic, 1, nil, false)))
	s.say("create again: %s", code(s.create(topic, partitions, nil)))
	s.say("three replicas: %s", code(s.admin.CreateTopic(s.prefix+"three", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false)))
	s.say("bad name: %s", code(s.create("a b", 1, nil)))
	err := s.admin.DeleteRecords(s.prefix+topic, map[int32]int64{0: 100, 1: -1})
	s.say("delete records: %s", code(err))
	client, err := sarama.NewClient(s.bootstrap, s.config())
	if err != nil {
		return err
	}
	defer client.Close()
	for partition := range int32(partitions) {
		oldest, err := client.GetOffset(s.prefix+topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		newest, err := client.GetOffset(s.prefix+topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		s.say("%s-%d: %d to %d", topic, partition, oldest, newest)
	}
	s.say("delete too many records: %s", code(s.admin.DeleteRecords(s.prefix+topic, map[int32]int64{0: 100_000})))
	brokers, controller, err := s.admin.DescribeCluster()
	if err != nil {
		return err
	}
	s.say("brokers %d, controller %d", len(brokers), controller)
	dirs, err := s.admin.DescribeLogDirs([]int32{1})
	if err != nil {
		return err
	}
	for broker, found := range dirs {
		for _, dir := range found {
			s.say("log directory of %d: %s", broker, code2(dir.ErrorCode))
		}
	}
	if s.version.IsAtLeast(sarama.V2_4_0_0) {
		_, err = s.admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{s.prefix + topic: {0}})
		s.say("elect: %s", code(err))
		moves, err := s.admin.ListPartitionReassignments(s.prefix+topic, []int32{0})
		s.say("reassignments: %d %s", len(moves), code(err))
	}
	if s.version.IsAtLeast(sarama.V2_7_0_0) {
		if err := s.security(ctx); err != nil {
			return err
		}
	}
	s.say("delete no topic: %s", code(s.admin.DeleteTopic(s.prefix+"none")))
	if err := s.admin.DeleteTopic(s.prefix + topic); err != nil {
		return err
	}
	isGone := func() bool {
		found, err := s.admin.ListTopics()
		_, isThere := found[s.prefix+topic]
		return err == nil && !isThere
	}
	return until(ctx, "deleted", isGone)
}

// security alters and describes SCRAM users and quotas. A broker of Kafka answers from its image, which may be behind
// what the controller has acknowledged.
func (s *story) security(ctx context.Context) error {
	upserts := []sarama.AlterUserScramCredentialsUpsert{
		{Name: s.prefix + "user", Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 4096, Salt: []byte("salt"), Password: []byte("secret")},
	}
	if _, err := s.admin.UpsertUserScramCredentials(upserts); err != nil {
		s.say("scram: %s", code(err))
	}
	var users []*sarama.DescribeUserScramCredentialsResult
	var err error
	areDescribed := func() bool {
		users, err = s.admin.DescribeUserScramCredentials([]string{s.prefix + "user", s.prefix + "nobody"})
		return err != nil || len(users) == 2 && users[0].ErrorCode != users[1].ErrorCode
	}
	if failure := until(ctx, "scram users described", areDescribed); failure != nil {
		return failure
	}
	if err != nil {
		s.say("scram users: %s", code(err))
	}
	// Kafka answers in the order of a hash table.
	sort.Slice(users, func(i, j int) bool { return users[i].User < users[j].User })
	for _, user := range users {
		s.say("scram user %s: %s %d", user.User, code2(user.ErrorCode), len(user.CredentialInfos))
	}
	quota := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: s.prefix + "user"}}
	s.say("quota: %s", code(s.admin.AlterClientQuotas(entity, quota, false)))
	filter := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: s.prefix + "user"}}
	var quotas []sarama.DescribeClientQuotasEntry
	isListed := func() bool {
		quotas, err = s.admin.DescribeClientQuotas(filter, false)
		return err != nil || len(quotas) > 0
	}
	if failure := until(ctx, "quota listed", isListed); failure != nil {
		return failure
	}
	if err != nil {
		s.say("quotas: %s", code(err))
	}
	for _, found := range quotas {
		s.say("quota %v", fmt.Sprint(found.Values))
	}
	acls, err := s.admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceTopic, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny, ResourcePatternTypeFilter: sarama.AclPatternAny})
	s.say("acls: %d %s", len(acls), code(err))
	return nil
}
