// Reads a history of registers as JSON and says whether it is linearizable, by porcupine;
// Unknown where that takes more than 20 seconds.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is one call and its answer; Ended is absent where no answer came.
type operation struct {
	Key      string  `json:"key"`
	Do       string  `json:"do"`
	Value    *string `json:"value"`
	Expected *string `json:"expected"`
	Result   any     `json:"result"`
	Begun    int64   `json:"begun_ns"`
	Ended    *int64  `json:"ended_ns"`
}

func same(a, b *string) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

func step(state, input, _ any) (bool, any) {
	held, _ := state.(*string)
	call := input.(operation)
	switch call.Do {
	case "read":
		read, ok := call.Result.(string)
		return (ok && held != nil && *held == read) || (!ok && held == nil), state
	case "write":
		return true, call.Value
	default:
		succeeds := same(held, call.Expected)
		if call.Ended != nil && call.Result != succeeds {
			return false, state
		}
		if succeeds {
			return true, call.Value
		}
		return true, state
	}
}

var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(operation).Key
			byKey[key] = append(byKey[key], one)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init:  func() any { return (*string)(nil) },
	Step:  step,
	Equal: func(a, b any) bool { return same(a.(*string), b.(*string)) },
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var calls []operation
	if err := json.Unmarshal(data, &calls); err != nil {
		panic(err)
	}
	var history []porcupine.Operation
	for client, call := range calls {
		end := int64(math.MaxInt64)
		if call.Ended != nil {
			end = *call.Ended
		} else if call.Do == "read" {
			continue
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: call, Call: call.Begun, Return: end})
	}
	result := porcupine.CheckOperationsTimeout(registers, history, 20*time.Second)
	fmt.Println(result)
	if result != porcupine.Ok {
		os.Exit(1)
	}
}
