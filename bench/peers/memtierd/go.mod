module homenode-bench-memtierd

go 1.22.0

require github.com/intel/memtierd v0.1.1

require (
	golang.org/x/sys v0.8.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
