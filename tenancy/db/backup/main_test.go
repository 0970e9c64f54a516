package backup_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"stoa/tenancy/db/backup"
)

// helperVariable makes the test's program restore the backup of its value to the database of its first argument, for tests
// that kill it.
const helperVariable = "STOA_TEST_RESTORE"

func TestMain(m *testing.M) {
	if from := os.Getenv(helperVariable); from != "" {
		if err := backup.Restore(context.Background(), os.Args[1], from, backup.Options{Replace: true}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
