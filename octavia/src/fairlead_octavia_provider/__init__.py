# SPDX-License-Identifier: Apache-2.0
"""Provider driver and provider agent of Fairlead, a layer-4 load balancer, for OpenStack Octavia."""
