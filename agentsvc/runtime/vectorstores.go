package runtime

import (
	"cmp"
	"path/filepath"

	"stoa/agentsvc/config"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/chroma"
	"stoa/agentsvc/vectorstore/chromem"
	"stoa/agentsvc/vectorstore/milvus"
	"stoa/agentsvc/vectorstore/pinecone"
	"stoa/agentsvc/vectorstore/qdrant"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/weaviate"
)

// vectorStoreBuilders are the types of vector stores on other machines, by their name in the configuration. chromem is
// none of them.
var vectorStoreBuilders = map[string]func(o remote.Options) (vectorstore.Store, error){
	"qdrant":   qdrant.New,
	"pinecone": func(o remote.Options) (vectorstore.Store, error) { return pinecone.New(o), nil },
	"weaviate": func(o remote.Options) (vectorstore.Store, error) { return weaviate.New(o), nil },
	"milvus":   func(o remote.Options) (vectorstore.Store, error) { return milvus.New(o), nil },
	"chroma":   func(o remote.Options) (vectorstore.Store, error) { return chroma.New(o), nil },
}

// newVectorStore returns the entry of vector_stores with that name, which the runtime closes, for a user that begins the
// names of collections with collection; "" = with what the entry says. It is built at the first call. It connects at its
// first use: a store that is down does not keep an app from starting.
func (a *hostAccess) newVectorStore(name, collection string) (vectorstore.Store, error) {
	c := a.cfg.VectorStores[name]
	prefix := collectionPrefix(c, collection)
	key := [2]string{name, prefix}
	if s := a.vectorStores[key]; s != nil {
		return s, nil
	}
	s, err := a.buildVectorStore(c, prefix)
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, s.Close)
	a.vectorStores[key] = s
	return s, nil
}

// collectionPrefix returns what the names of collections begin with; collection is that of a user, "" = what c says.
func collectionPrefix(c *config.VectorStore, collection string) string {
	return cmp.Or(collection, c.Collection, remote.DefaultPrefix)
}

// buildVectorStore builds a vector store whose collections' names begin with prefix. The folder of an app is named by
// its id.
func (a *hostAccess) buildVectorStore(c *config.VectorStore, prefix string) (vectorstore.Store, error) {
	if newStore := vectorStoreBuilders[c.Type]; newStore != nil {
		return newStore(remote.Options{
			Host: c.Host, Port: c.Port, APIKey: c.APIKey, EnableTLS: c.EnableTLS, Prefix: prefix, Tenant: string(a.tenant.ID), Egress: a.egressClient, Memory: a.answerMemory,
		})
	}
	o := chromem.Options{Compress: c.Compress, Prefix: prefix, App: string(a.tenant.ID), Memory: a.newVectorMemory()}
	if c.PersistPath != "" {
		o.Path = filepath.Join(c.PersistPath, string(a.tenant.ID))
	}
	return chromem.New(o), nil
}
