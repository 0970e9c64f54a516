package weaviate_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
	"stoa/agentsvc/vectorstore/weaviate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStore runs the suite against a server in this process.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		return weaviate.New(remotetest.NewOptions(t, remotetest.StartWeaviate(t, remotetest.NewIndex())))
	})
}

// TestRealStore runs the suite against a real server. Each test has collections of its own.
func TestRealStore(t *testing.T) {
	program := os.Getenv("STOA_TEST_WEAVIATE")
	if program == "" {
		t.Skip("ATTENTION: without STOA_TEST_WEAVIATE (the program that .ci/weaviate prints) the real Weaviate is not tested")
	}
	address := remotetest.StartRealWeaviate(t, program)
	n := 0
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		n++
		o := remotetest.NewOptions(t, address)
		o.Prefix = "test" + strings.Repeat("x", n)
		return weaviate.New(o)
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	remotetest.RunConnectionSuite(t, func(o remote.Options) (vectorstore.Store, error) { return weaviate.New(o), nil })
}
