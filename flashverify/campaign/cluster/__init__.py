"""Workers on other machines: a group of processes at each place of a cluster, which the supervisor of one machine hands tasks to.

`group` runs on the machine of the workers, everything else on that of the supervisor. `ray_cluster` alone knows Ray.
"""
