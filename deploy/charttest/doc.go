package charttest
