package extract_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/document/extract"
	"stoa/agentsvc/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	runHostileHelper(os.Getenv(extract.HelperVariable))
	extract.RunHelper(os.Getenv(extract.HelperVariable))
	goleak.VerifyTestMain(m)
}

func runHostileHelper(string) {}
