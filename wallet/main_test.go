// SPDX-License-Identifier: MIT

package wallet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(processEnv); arguments != "" {
		var c crediting
		err := json.Unmarshal([]byte(arguments), &c)
		if err == nil {
			err = c.run(os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
