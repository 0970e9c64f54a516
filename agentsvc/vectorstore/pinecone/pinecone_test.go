package pinecone_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/pinecone"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStore runs the suite against a server in this process: the service itself cannot be reached by tests.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		return pinecone.New(remotetest.NewOptions(t, remotetest.StartPinecone(t, remotetest.NewIndex())))
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	remotetest.RunConnectionSuite(t, func(o remote.Options) (vectorstore.Store, error) { return pinecone.New(o), nil })
}
