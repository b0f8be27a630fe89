import itertools, json, os, statistics, torch, sys
from dataclasses import replace
from flashverify_kernels import Configs, Options, forward, launch_config
from flashverify.bench.clock import clock_of, interleaved
from torch.nn.attention import sdpa_kernel, SDPBackend
clock = clock_of("cuda"); out=[]
g = torch.Generator("cuda").manual_seed(0)
def n(*s, dt): return torch.randn(*s, generator=g, device="cuda", dtype=dt)
def run(q,k,v,mask,hop,layout="bhsd"):
    c = launch_config("forward", d=256, dv=256, dtype=q.dtype, mask="causal" if mask else "none", sq=q.shape[2], capability=(9,0))
    assert c.hopper and c.block_n==64, c
    return forward(q,k,v,Options(**mask, config=Configs(forward=replace(c, hopper=hop))))
for (mask,(sq,sk),(h,hk)) in [({}, (1000,1333),(4,1)),({"causal":"top-left"},(2048,2048),(2,2)),({"causal":"bottom-right"},(700,333),(2,1)),({"window":(None,77)},(520,391),(2,2)),({"window":(63,0)},(1024,1024),(2,1)),({"window":(300,129)},(1111,1200),(4,2)),({"causal":"top-left"},(4096,4096),(16,4))]:
  for dt in (torch.float16, torch.bfloat16):
    q,k,v = n(2,h,sq,256,dt=dt),n(2,hk,sk,256,dt=dt),n(2,hk,sk,256,dt=dt)
    c = replace(launch_config("forward", d=256, dv=256, dtype=dt, mask="causal", sq=sq, capability=(9,0)))
    a=forward(q,k,v,Options(**mask,config=Configs(forward=replace(c,hopper=False)))); b=forward(q,k,v,Options(**mask,config=Configs(forward=c)))
    print(mask,sq,sk,dt,"o",torch.equal(a.o,b.o),"lse",torch.equal(a.lse2,b.lse2),flush=True)
for N,causal,dt in itertools.product((1024,4096,16384),(False,True),(torch.float16,torch.bfloat16)):
    B,H=16384//N,8
    q,k,v=(n(B,H,N,256,dt=dt) for _ in "qkv")
    mask={"causal":"top-left"} if causal else {}
    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION): return torch.nn.functional.scaled_dot_product_attention(q,k,v,is_causal=causal)
    t=interleaved({"general":lambda: run(q,k,v,mask,False),"hopper":lambda: run(q,k,v,mask,True),"cudnn":cudnn},clock,rounds=15,warmup=2)
    m={a:statistics.median(b) for a,b in t.items()}
    print(N,causal,dt,{a:round(b,4) for a,b in m.items()},"hopper/general %.3f cudnn/hopper %.3f"%(m["general"]/m["hopper"],m["cudnn"]/m["hopper"]),flush=True)
    out.append([N,causal,str(dt),m])
json.dump(out,open(os.path.join(os.environ.get("OUT","."),"wide.json"),"w"))
