package etcdfault

const asReplica = "as-replica"

func beReplica([]string) int { return 0 }
