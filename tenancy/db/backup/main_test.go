package backup_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"stoa/tenancy/db/backup"
)

// These make the test's program restore the backup of their value to the database of its first argument, or write a backup
// of that database to their value, for tests that kill it.
const (
	helperVariable = "STOA_TEST_RESTORE"
	writeVariable  = "STOA_TEST_BACKUP"
)

func TestMain(m *testing.M) {
	if to := os.Getenv(writeVariable); to != "" {
		if err := backup.Write(context.Background(), os.Args[1], to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if from := os.Getenv(helperVariable); from != "" {
		if err := backup.Restore(context.Background(), os.Args[1], from, backup.Options{Replace: true}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
